package call_test

import (
	"testing"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/internal/place"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
)

type ready struct{}

func (ready) GetState() connectivity.State { return connectivity.Ready }

func TestNoBackendPolicy(t *testing.T) {
	for _, tc := range []struct {
		name    string
		opts    []hedge.Option
		conn    feature.Conn
		policy  string // on which target there is one
		want    bool
		allowed bool
	}{
		{"no policy at all", []hedge.Option{hedge.WithOtherBackendOnly(true)}, ready{}, "", true, false},
		{"on another target only", []hedge.Option{hedge.WithOtherBackendOnly(true)}, ready{}, "elsewhere", true, false},
		{"one that has no other backend", []hedge.Option{hedge.WithOtherBackendOnly(true)}, ready{}, target, false, false},
		{"no connection of gRPC's", []hedge.Option{hedge.WithOtherBackendOnly(true)}, nil, "", false, true},
		{"without the option", nil, ready{}, "", false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.policy != "" {
				policy := place.Enter(tc.policy)
				defer policy.Leave()
				policy.Show([]*place.Backend{policy.NewBackend(nil, []resolver.Address{{Addr: "only"}}, 0)})
			}
			s := hedgetest.All(t, tc.opts...)
			says := func() bool { return s.Methods()[0].NoBackendPolicy }
			c := call.Begin(registry.Of(s), t.Context(), target, method, tc.conn, hedge.After(0))
			c.PrimaryContext(t.Context(), target)
			if says() {
				t.Error("it is said before a hedge is due")
			}
			if send, _ := hedgetest.Admit(&c, 1); send != tc.allowed {
				t.Errorf("sent: %v", send)
			}
			if got := says(); got != tc.want {
				t.Errorf("NoBackendPolicy is %v", got)
			}
		})
	}
}
