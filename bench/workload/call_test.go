package workload

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestTokensChecked checks that an incomplete stream is reported as wrong and a failed one as
// failed.
func TestTokensChecked(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plan  testserver.Plan
		wrong bool
		err   string
	}{
		{name: "whole", plan: testserver.Plan{}},
		{name: "short", plan: testserver.Plan{Messages: 3}, wrong: true, err: "stream 1: 3 messages, want 4"},
		{name: "long", plan: testserver.Plan{Messages: 5}, wrong: true, err: "stream 1: 5 messages, want 4"},
		{name: "empty", plan: testserver.Plan{Empty: true}, wrong: true, err: "stream 1: 0 messages, want 4"},
		{name: "other payload", plan: testserver.Plan{PayloadBytes: 9}, wrong: true, err: "payload of 9 bytes"},
		{name: "failed", plan: testserver.Plan{After: 2, Code: codes.DataLoss}, err: "DataLoss"},
	} {
		cluster := testserver.StartT(t,
			testserver.Config{Script: func(testserver.Attempt) testserver.Plan { return tc.plan }})
		_, _, err := tokens(t.Context(), testpb.NewTestServiceClient(cluster.ClientT(t)), 1)
		if got := errors.As(err, new(WrongReply)); got != tc.wrong || (err == nil) != (tc.err == "") ||
			err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, a wrong reply: %v; want %q, %v", tc.name, err, got, tc.err, tc.wrong)
		}
	}
}
