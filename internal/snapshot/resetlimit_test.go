package snapshot_test

import (
	"bytes"
	"testing"

	"github.com/grpchedge/hedge/internal/latency"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/internal/snapshot"
)

// TestResetLimit_Merged has the lowest limit be in force, in whatever order snapshots come, appended or merged.
func TestResetLimit_Merged(t *testing.T) {
	with := func(l *snapshot.ResetLimit) snapshot.Snapshot {
		return snapshot.Snapshot{"dns:///a": {ResetLimit: l, Methods: map[string]*snapshot.Method{
			"/p.S/Get": {Knowledge: learn.Knowledge{Primaries: latency.Counts{{Bucket: 7, Calls: 1}}}},
		}}}
	}
	low, high := &snapshot.ResetLimit{Burst: 30, PerSecond: 1}, &snapshot.ResetLimit{Burst: 3, PerSecond: 2}
	for _, tc := range []struct{ a, b, want *snapshot.ResetLimit }{
		{low, high, low}, {high, low, low}, {nil, high, high}, {high, nil, high}, {nil, nil, nil},
	} {
		appended, err := snapshot.Read(bytes.NewReader(append(written(t, with(tc.a)), written(t, with(tc.b))...)))
		if err != nil {
			t.Fatal(err)
		}
		merged := snapshot.Snapshot{}
		merged.Merge(with(tc.a))
		merged.Merge(with(tc.b))
		for _, s := range []snapshot.Snapshot{appended, merged} {
			if got := s["dns:///a"].ResetLimit; (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
				t.Errorf("%+v and %+v: %+v", tc.a, tc.b, got)
			}
		}
	}
}

// TestResetLimit_TooHighIsNotWritten has a limit that no reader would accept: the snapshot is written without it.
func TestResetLimit_TooHighIsNotWritten(t *testing.T) {
	s := example()
	s["dns:///a"].ResetLimit = &snapshot.ResetLimit{Burst: 1, PerSecond: 2_000}
	got, err := snapshot.Read(bytes.NewReader(written(t, s)))
	if err != nil || got["dns:///a"].ResetLimit != nil {
		t.Errorf("%+v, %v", got["dns:///a"], err)
	}
}
