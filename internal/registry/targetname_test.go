package registry_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

// etcd names the target as etcd's client does, without the pointer in it.
func etcd(target string) string {
	if rest, ok := strings.CutPrefix(target, "etcd-endpoints://"); ok {
		_, host, _ := strings.Cut(rest, "/")
		return "etcd/" + host
	}
	return target
}

func TestWithTargetName(t *testing.T) {
	var asked atomic.Int64
	s := hedgetest.All(t, hedge.WithTargetName(func(target string) string {
		asked.Add(1)
		return etcd(target)
	}))
	for i := range 10 {
		for range 50 {
			hedgetest.Call(t, s, target, method, 0)
			c := call.Begin((*registry.Registry)(s), t.Context(), fmt.Sprintf("etcd-endpoints://0x%x/host", i), method, nil)
			c.End(call.Completion{})
		}
	}
	rows := s.Methods()
	if len(rows) != 2 || rows[1].Target != "etcd/host" || rows[1].Calls != 500 || rows[0].Target != target {
		t.Fatalf("the rows are %+v, want one for the ten connections, and one for the other target", rows)
	}
	if rows[1].Warmup != 20 {
		t.Errorf("%d calls in warm-up: a connection did not use what the previous one had learned", rows[1].Warmup)
	}
	if asked.Load() != 11 {
		t.Errorf("asked %d times for the names of 11 targets", asked.Load())
	}
	if _, ok := s.Latency("etcd/host", method, 0.5); !ok {
		t.Error("no latency is stored under the name")
	}
	if _, ok := s.Latency("etcd-endpoints://0x1/host", method, 0.5); ok {
		t.Error("a latency is stored under the connection's target")
	}
}

// A process makes a new connection, with a pointer in its target, again and again: connections of
// an idle target are forgotten; a busy target forgets names before they are many.
func TestWithTargetName_OfAnyNumberOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := hedgetest.All(t, hedge.WithMaxMethods(100), hedge.WithTargetName(etcd))
		const connections = 4_950
		for i := range connections {
			booked(s, fmt.Sprintf("etcd-endpoints://0x%x/host", i), method, ms)
			if n := registry.Names((*registry.Registry)(s)); i%50 == 0 && n > 100 {
				t.Fatalf("%d names after %d connections", n, i)
			}
		}
		if rows := s.Methods(); len(rows) != 1 || rows[0].Calls != connections {
			t.Errorf("the rows are %+v, want one with all connections", rows)
		}
		for range 20 {
			time.Sleep(time.Minute)
			booked(s, "other", method, ms)
		}
		if n := registry.Names((*registry.Registry)(s)); n > 1 {
			t.Errorf("%d names are kept", n)
		}
	})
}

func TestWithTargetName_LongNamesAreCut(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTargetName(func(string) string { return strings.Repeat("ä", 1<<20) }))
	hedgetest.Call(t, s, target, method, 0)
	if name := s.Methods()[0].Target; name != strings.Repeat("ä", 512) {
		t.Errorf("a name of %d bytes", len(name))
	}
}

func TestWithTargetName_PanicIsTheCalls(t *testing.T) {
	broken := true
	s := hedgetest.All(t, hedge.WithTargetName(func(string) string {
		if broken {
			panic("no name")
		}
		return "name"
	}))
	func() {
		defer func() {
			if recover() != "no name" {
				t.Error("the panic does not reach the caller")
			}
		}()
		hedgetest.Call(t, s, target, method, 0)
	}()
	broken = false
	hedgetest.Call(t, s, target, method, 0) // no lock is held
	if rows := s.Methods(); len(rows) != 1 || rows[0].Calls != 1 {
		t.Errorf("the rows are %+v, want one with the second call", rows)
	}
}

// Policies go by the connection's target, and the name has the backends of all its connections.
func TestWithTargetName_Backends(t *testing.T) {
	s := hedgetest.All(t, hedge.WithTargetName(func(string) string { return "name" }))
	for _, connection := range []string{"raw-1", "raw-2"} {
		policy := place.Enter(connection)
		defer policy.Leave()
		policy.Show([]*place.Backend{
			policy.NewBackend(nil, []resolver.Address{{Addr: "shared"}}, 0),
			policy.NewBackend(nil, []resolver.Address{{Addr: connection}}, 0),
		})
		booked(s, connection, method, ms)
	}
	if rows := s.Methods(); len(rows) != 1 || rows[0].Ready != 3 {
		t.Errorf("the rows are %+v, want one with the three backends", rows)
	}
}
