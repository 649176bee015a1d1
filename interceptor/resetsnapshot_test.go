package interceptor_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/testserver"
	"github.com/grpchedge/hedge/proto/snapshotpb"
	"github.com/grpchedge/hedge/stats"
)

// TestSnapshot_LimitOfResets connects to a server that cuts the connection for too many resets. A second client, which takes
// over what the first has learned, sends no resets from its first call on, and no connection of it is cut.
func TestSnapshot_LimitOfResets(t *testing.T) {
	longtest.Simulation(t)
	longtest.Only(t)
	limit := testserver.Limit{Resets: 100, Per: time.Minute, Close: testserver.CloseCalm}
	var mu sync.Mutex
	var written []byte
	tr := traffic{rate: 500, callers: 64, lasts: 12 * time.Second, limit: &limit, hedged: true, every: func(s *hedge.Scheduler) {
		var b bytes.Buffer
		if err := s.WriteSnapshot(&b); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		written = b.Bytes()
	}}
	first := tr.run(t)
	if first.resets.Mode != stats.ResetsLearned || first.conns.Connections < 2 {
		t.Fatalf("the first client has made %d connections, and has learned %+v", first.conns.Connections, first.resets)
	}
	snapshot := bytes.Clone(written)
	if l := calmIn(t, snapshot); l == nil || l.Since == 0 || l.Until-l.Since != int64(10*time.Minute) {
		t.Fatalf("the snapshot has the calm %v", l)
	}

	tr.options = []hedge.Option{hedge.WithSnapshot(bytes.NewReader(snapshot))}
	second := tr.run(t)
	if second.conns.Connections != 1 || second.stats.Repeated != 0 || len(second.failed) > 0 {
		t.Errorf("the second client has made %d connections, %d calls were repeated, %d failed", second.conns.Connections, second.stats.Repeated, len(second.failed))
	}
	if second.resets.Mode != stats.ResetsLearned || second.resets.Since != first.resets.Since || second.stats.Left == 0 {
		t.Errorf("the second client has left %d losers, under %+v; the first has learned %+v", second.stats.Left, second.resets, first.resets)
	}
	if got, want := calmIn(t, written), calmIn(t, snapshot); got.GetSince() != want.Since || got.Until > want.Until {
		t.Errorf("the second client writes the calm %v, the first %v", got, want)
	}

	tr.options = []hedge.Option{hedge.WithSnapshot(bytes.NewReader(snapshot)), hedge.WithResetLimit(20, time.Minute)}
	if third := tr.run(t); third.resets.Mode != stats.ResetsSet || third.resets.Limit != 20 {
		t.Errorf("with WithResetLimit: %+v", third.resets)
	}
}

func calmIn(t *testing.T, snapshot []byte) *snapshotpb.Calm {
	t.Helper()
	var message snapshotpb.Snapshot
	if err := proto.Unmarshal(snapshot, &message); err != nil {
		t.Fatal(err)
	}
	return message.Targets[0].Calm
}
