package otel_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/grpchedge/hedge"
	_ "github.com/grpchedge/hedge/balancer"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	hedgeotel "github.com/grpchedge/hedge/otel"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestMetrics_AreThoseOfTheDocumentation makes every metric report. Names and units match the
// documentation.
func TestMetrics_AreThoseOfTheDocumentation(t *testing.T) {
	type described struct{ name, unit string }
	var got []described
	synctest.Test(t, func(t *testing.T) {
		b := newBackend(t)
		s := hedgetest.All(t, hedgetest.Throttle(100, 0.1), hedge.WithControl(20), hedge.WithBudgetPercent(3), b.telemetry(t))
		client := stragglers(t, append(hedgetest.Interceptors(s), otherBackend)...)
		for n := range 16_000 {
			if err := call(t.Context(), "unary", client, uint64(n)); err != nil {
				t.Fatal(err)
			}
			if n > 6_000 { // before, calls are frequent enough for hedges to be withheld
				time.Sleep(130 * time.Millisecond) // a gain is measured in ten minutes
			}
		}
		for _, s := range collect(t, b.reader) {
			if d := (described{s.name, s.unit}); !strings.HasSuffix(s.name, ".sum") && !slices.Contains(got, d) {
				got = append(got, d)
			}
		}
	})

	var named []described
	page, err := os.ReadFile("../../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	unit := regexp.MustCompile(`, (s|\{\w+\})$`)
	rows := strings.ReplaceAll(string(page), " |\n| | | ", " ") // a row may continue in the next one
	for _, row := range regexp.MustCompile(
		"(?m)^\\| `(grpc[\\w.{},]+)` \\| ([^|]*) \\| (.*) \\|$").FindAllStringSubmatch(rows, -1) {
		d := described{name: row[1]}
		if u := unit.FindStringSubmatch(row[2]); u != nil {
			d.unit = u[1]
		}
		for _, name := range expanded(d.name) {
			named = append(named, described{name, d.unit})
		}
	}
	order := func(a, b described) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(got, order)
	slices.SortFunc(named, order)
	if !slices.Equal(got, named) {
		t.Errorf("there are\n%+v\nand docs/observability.md has\n%+v", got, named)
	}
}

// expanded returns the names that a name with {a,b} stands for.
func expanded(name string) (names []string) {
	before, rest, ok := strings.Cut(name, "{")
	if !ok {
		return []string{name}
	}
	choices, after, _ := strings.Cut(rest, "}")
	for _, choice := range strings.Split(choices, ",") {
		names = append(names, expanded(before+choice+after)...)
	}
	return names
}

// TestMetrics_OfHTTP has a target of package hedgehttp beside one of gRPC. Neither has a metric or an
// attribute of the other's name.
func TestMetrics_OfHTTP(t *testing.T) {
	b := newBackend(t)
	s := hedgetest.Fixed(t, time.Nanosecond, hedge.WithMinDelay(0), hedgetest.Throttle(100, 0.1), b.telemetry(t))
	for _, target := range []string{"dns:///shop", "http://shop", "https://shop"} {
		hedgetest.Call(t, s, target, "GET", time.Millisecond)
	}
	names := map[string]int{}
	for _, s := range collect(t, b.reader) {
		protocol, _, _ := strings.Cut(s.name, ".")
		names[protocol]++
		target := s.get("grpc.target")
		if protocol == "http" {
			target = s.get("http.hedge.target")
		}
		if target == "" || strings.HasPrefix(target, "http") != (protocol == "http") {
			t.Errorf("%s of the target %q", s.name, target)
		}
	}
	if names["grpc"] == 0 || names["http"] != 2*names["grpc"] {
		t.Errorf("%v metrics, want those of HTTP for two targets, and of gRPC for one", names)
	}
}

// otherBackend is the load-balancing policy of package balancer.
var otherBackend = grpc.WithDefaultServiceConfig(
	`{"loadBalancingConfig": [{"hedge_other_backend": {"childPolicy": [{"round_robin": {}}]}}]}`)

// TestNames_AreThePlugins makes calls that fail to connect, and compares their names with the names
// that gRPC's plugin reports on the same connection.
func TestNames_AreThePlugins(t *testing.T) {
	compare := func(target, method string, options ...grpc.CallOption) {
		b := newBackend(t)
		conn, err := grpc.NewClient(target, append(hedgeotel.DialOptions(hedgetest.All(t, b.telemetry(t)), b.plugin()),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed }))...)
		if err != nil {
			t.Logf("%s: %v", target, err)
			return
		}
		defer conn.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // before a name is resolved
		_ = conn.Invoke(ctx, method, &testpb.Request{}, &testpb.Reply{}, options...)
		names := map[string][]string{}
		for _, s := range collect(t, b.reader) {
			names[s.name] = append(names[s.name], s.get("grpc.target")+" "+s.get("grpc.method"))
		}
		theirs, ours := names["grpc.client.call.duration"], names["grpc.client.hedge.calls"]
		if !slices.Equal(theirs, ours) || len(ours) != 1 {
			t.Errorf("%q %q, %d options: %q, and gRPC's plugin says %q", target, method, len(options), ours, theirs)
		}
	}
	for _, target := range []string{"host:443", "10.0.0.1", "[::1]:443", "::1", ":443", "dns:host:443", "dns:///host:443",
		"dns://8.8.8.8/host:443", "passthrough:///host:443", "passthrough:host", "unix:///run/x.sock", "unix:x.sock",
		"unknown:///host:443", "unknown:host", "a/b", "host:443?a=b", "dns:///a b", "dns:///\u00fc:443",
		"http://host/path"} {
		compare(target, "/shop.Items/Get")
	}
	for _, method := range []string{"/shop.Items/Get", "shop.Items/Get", "//shop.Items/Get", "/shop.Items/G\u00e4t"} {
		compare("host", method)
		compare("host", method, grpc.StaticMethod())
	}
}

// TestNames_Invented calls invented methods without the option grpc.StaticMethod, and then the real
// one. Names that are not valid UTF-8 are repaired.
func TestNames_Invented(t *testing.T) {
	b := newBackend(t)
	s := hedgetest.All(t, b.telemetry(t), hedge.WithTargetName(func(string) string { return "sh\xffop" }))
	conn := testserver.StartT(t, testserver.Config{}).ClientT(t, hedgetest.Interceptors(s)...)
	for n := range 1500 {
		_ = conn.Invoke(t.Context(), fmt.Sprintf("/invented/\xff%d", n), &testpb.Request{}, &testpb.Reply{})
	}
	if _, err := testpb.NewTestServiceClient(conn).Unary(t.Context(), &testpb.Request{}); err != nil {
		t.Fatal(err)
	}
	_ = conn.Invoke(t.Context(), "/real/\xff", &testpb.Request{}, &testpb.Reply{}, grpc.StaticMethod())
	all := collect(t, b.reader)
	for having, want := range map[string]float64{"grpc.method=other": 1500,
		"grpc.method=hedgetest.TestService/Unary": 1, "grpc.method=real/\ufffd": 1, "grpc.target=sh\ufffdop": 1502} {
		if got, n := sum(all, "grpc.client.hedge.calls", having); got != want || n < 1 {
			t.Errorf("%s: %v calls, want %v", having, got, want)
		}
	}
}
