package rpc_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/grpchedge/hedge/internal/rpc"
)

func TestPushback(t *testing.T) {
	const never = -time.Millisecond
	for _, tc := range []struct {
		values []string
		wait   time.Duration // negative: for good
	}{
		{nil, 0}, {[]string{"0"}, 0}, {[]string{"250"}, 250 * time.Millisecond}, {[]string{"-1"}, never},
		{[]string{"soon"}, never}, {[]string{"2147483648"}, never}, {[]string{"1", "2"}, never}, {[]string{""}, never},
	} {
		trailer := metadata.MD{"a": {"1"}, rpc.PushbackTrailer: slices.Clone(tc.values)}
		if wait, ok := rpc.Pushback(trailer); wait != tc.wait || ok != (tc.values != nil) {
			t.Errorf("%q: %v, %v, want %v", tc.values, wait, ok, tc.wait)
		}
	}
}
