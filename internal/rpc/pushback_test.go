package rpc_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/rpc"
)

func TestPushback(t *testing.T) {
	for _, tc := range []struct {
		name    string
		trailer metadata.MD
		wait    time.Duration // negative: for good
		ok      bool
	}{
		{"no trailer", nil, 0, false},
		{"another key", metadata.Pairs("a", "1"), 0, false},
		{"at once", metadata.Pairs(rpc.PushbackTrailer, "0"), 0, true},
		{"later", metadata.Pairs(rpc.PushbackTrailer, "250"), 250 * time.Millisecond, true},
		{"never", metadata.Pairs(rpc.PushbackTrailer, "-1"), -time.Millisecond, true},
		{"no number", metadata.Pairs(rpc.PushbackTrailer, "soon"), -time.Millisecond, true},
		{"no int32", metadata.Pairs(rpc.PushbackTrailer, "2147483648"), -time.Millisecond, true},
		{"two of them", metadata.Pairs(rpc.PushbackTrailer, "1", rpc.PushbackTrailer, "2"), -time.Millisecond, true},
		{"empty", metadata.Pairs(rpc.PushbackTrailer, ""), -time.Millisecond, true},
	} {
		if wait, ok := rpc.Pushback(tc.trailer); wait != tc.wait || ok != tc.ok {
			t.Errorf("%s: %v, %v, want %v, %v", tc.name, wait, ok, tc.wait, tc.ok)
		}
	}
}
