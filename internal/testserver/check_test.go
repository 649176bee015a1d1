package testserver_test

import (
	"testing"

	"github.com/grpchedge/hedge/internal/testserver"
	testpb "github.com/grpchedge/hedge/proto"
)

// TestCheckFindsWrongReplies spoils each part of a reply. All tests that count wrong replies, the
// benchmark's workloads too, rely on Check.
func TestCheckFindsWrongReplies(t *testing.T) {
	client := testpb.NewTestServiceClient(testserver.StartT(t, testserver.Config{}).ClientT(t))
	req := &testpb.Request{Id: 7, ReplyBytes: 100}
	for name, spoil := range map[string]func(*testpb.Reply){
		"":         func(*testpb.Reply) {},
		"id":       func(r *testpb.Reply) { r.Id++ },
		"sequence": func(r *testpb.Reply) { r.Sequence++ },
		"backend":  func(r *testpb.Reply) { r.Backend++ },
		"attempt":  func(r *testpb.Reply) { r.Attempt++ },
		"payload":  func(r *testpb.Reply) { r.Payload[99]++ },
		"size":     func(r *testpb.Reply) { r.Payload = r.Payload[:99] },
		"emptied":  func(r *testpb.Reply) { r.Reset() },
	} {
		reply, err := client.Unary(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		spoil(reply)
		if err := testserver.Check(req, 0, reply); (err == nil) != (name == "") {
			t.Errorf("a reply with a wrong %q: %v", name, err)
		}
	}
}
