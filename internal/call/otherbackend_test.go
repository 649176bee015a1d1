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

// TestWithOtherBackendOnly_OfOneBackend has no policy, or one with a single backend.
func TestWithOtherBackendOnly_OfOneBackend(t *testing.T) {
	for _, tc := range []struct {
		name    string
		opts    []hedge.Option
		conn    feature.Conn
		policy  string // on which target there is one
		allowed bool
	}{
		{"no policy at all", []hedge.Option{hedge.WithOtherBackendOnly(true)}, ready{}, "", false},
		{"on another target only", []hedge.Option{hedge.WithOtherBackendOnly(true)}, ready{}, "elsewhere", false},
		{"one that has no other backend", []hedge.Option{hedge.WithOtherBackendOnly(true)}, ready{}, target, false},
		{"no connection of gRPC's", []hedge.Option{hedge.WithOtherBackendOnly(true)}, nil, "", true},
		{"without the option", nil, ready{}, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.policy != "" {
				policy := place.Enter(tc.policy)
				defer policy.Leave()
				policy.Show([]*place.Backend{policy.NewBackend(nil, []resolver.Address{{Addr: "only"}}, 0)})
			}
			s := hedgetest.All(t, tc.opts...)
			c := call.Begin(registry.Of(s), t.Context(), target, method, tc.conn, hedge.After(0))
			c.PrimaryContext(t.Context(), target)
			if send, _ := hedgetest.Admit(&c, 1); send != tc.allowed {
				t.Errorf("sent: %v", send)
			}
			if got := s.Stats().NoOtherBackend; (got == 0) != tc.allowed {
				t.Errorf("%d hedges held back", got)
			}
		})
	}
}
