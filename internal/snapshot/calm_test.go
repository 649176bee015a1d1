package snapshot_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/snapshot"
	"github.com/grpchedge/hedge/sketch"
)

// TestCalm_Merged shows that the calm that lasts longest is in force, in whatever order snapshots come, appended or merged.
func TestCalm_Merged(t *testing.T) {
	with := func(c resets.Calm) snapshot.Snapshot {
		return snapshot.Snapshot{"dns:///a": {Calm: c, Methods: map[string]*snapshot.Method{
			"/p.S/Get": {Knowledge: learn.Knowledge{Primaries: sketch.Counts{{Bucket: 7, Calls: 1}}}},
		}}}
	}
	none := resets.Calm{}
	short, long := resets.Calm{Since: time.Unix(5, 0), Until: time.Unix(10, 1)}, resets.Calm{Since: time.Unix(3, 2), Until: time.Unix(12, 0)}
	for _, tc := range []struct{ a, b, want resets.Calm }{
		{short, long, long}, {long, short, long}, {none, short, short}, {short, none, short}, {none, none, none},
	} {
		appended, err := snapshot.Read(bytes.NewReader(append(written(t, with(tc.a)), written(t, with(tc.b))...)))
		if err != nil {
			t.Fatal(err)
		}
		merged := snapshot.Snapshot{}
		merged.Merge(with(tc.a))
		merged.Merge(with(tc.b))
		for _, s := range []snapshot.Snapshot{appended, merged} {
			if got := s["dns:///a"].Calm; got != tc.want {
				t.Errorf("%+v and %+v: %+v", tc.a, tc.b, got)
			}
		}
	}
}
