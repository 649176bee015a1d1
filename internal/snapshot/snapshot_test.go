package snapshot_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/snapshot"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// example is a snapshot of two targets.
func example() map[string]*snapshot.TargetKnowledge {
	return map[string]*snapshot.TargetKnowledge{
		"dns:///a": {CallsPerSecond: 12.5, Methods: map[string]*snapshot.MethodKnowledge{
			"/p.S/Get": {
				Knowledge: trigger.Knowledge{
					Primaries: sketch.Counts{{Bucket: 400, Calls: 90}, {Bucket: 401, Calls: 0.5}, {Bucket: 600, Calls: 9.5}},
					Hedges:    sketch.Counts{{Bucket: 0, Calls: 1}, {Bucket: sketch.Buckets - 3, Calls: 2}},
					Outcomes: []trigger.HedgedCalls{
						{Age: 9 * time.Millisecond, Hedges: 2, Rest: sketch.Counts{{Bucket: 300, Calls: 7}}},
					},
				},
				Classes: map[string]trigger.Knowledge{"big": {Primaries: sketch.Counts{{Bucket: 600, Calls: 9}}}},
			},
			"/p.S/List": {Knowledge: trigger.Knowledge{Primaries: sketch.Counts{{Bucket: 7, Calls: 1}}}},
		}},
		"dns:///b": {Methods: map[string]*snapshot.MethodKnowledge{
			"/p.S/Get": {Knowledge: trigger.Knowledge{Primaries: sketch.Counts{{Bucket: 100, Calls: 1e6}}}},
		}},
	}
}

func written(t testing.TB, s map[string]*snapshot.TargetKnowledge) []byte {
	t.Helper()
	var b bytes.Buffer
	w := snapshot.Writer{To: &b}
	for _, name := range []string{"dns:///a", "dns:///b"} {
		if target := s[name]; target != nil {
			if err := w.Target(name, target); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// differ takes ages for equal that differ by less than a microsecond: a snapshot has their
// logarithms.
func differ(a, b map[string]*snapshot.TargetKnowledge) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(),
		cmp.Comparer(func(a, b time.Duration) bool { return math.Abs(float64(a-b)) < 1000 }))
}

func TestRead_WhatWasWritten(t *testing.T) {
	b := written(t, example())
	got, err := snapshot.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := differ(example(), got); diff != "" {
		t.Error(diff)
	}
	if again := written(t, got); len(again) != len(b) {
		t.Errorf("%d bytes when written again, %d before", len(again), len(b))
	}
	var message snapshotpb.Snapshot
	if err := proto.Unmarshal(b, &message); err != nil || len(message.Targets) != 2 || message.Version != 1 {
		t.Errorf("generated code reads %v, %v", &message, err)
	}
}

// TestRead_Appended has two snapshots in one, as `cat` makes it, and two that are read together:
// they are merged.
func TestRead_Appended(t *testing.T) {
	b := written(t, example())
	appended, err := snapshot.Read(bytes.NewReader(append(bytes.Clone(b), b...)))
	if err != nil {
		t.Fatal(err)
	}
	each, err := snapshot.Read(bytes.NewReader(b), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := differ(each, appended); diff != "" {
		t.Error(diff)
	}
	if got, err := snapshot.Read(bytes.NewReader(b), bytes.NewReader(b[:len(b)/2])); err == nil {
		t.Errorf("one of two is cut off, and %v are read", got)
	}
	got := appended["dns:///a"].Methods["/p.S/Get"]
	if got.Primaries.Total() != 200 || got.Classes["big"].Primaries.Total() != 18 || got.Outcomes[0].Rest.Total() != 14 {
		t.Errorf("merged: %+v", got)
	}
}

// TestRead_CutOff cuts a snapshot off at each byte.
func TestRead_CutOff(t *testing.T) {
	b := written(t, example())
	for n := range b {
		if got, err := snapshot.Read(bytes.NewReader(b[:n])); err == nil {
			t.Errorf("the first %d of %d bytes are read as %v", n, len(b), got)
		}
	}
	failed := errors.New("the disk is on fire")
	if _, err := snapshot.Read(iotest.ErrReader(failed)); !errors.Is(err, failed) {
		t.Errorf("the error is %v, want the reader's", err)
	}
}

// TestRead_LaterVersion has fields that this version does not know, in each message.
func TestRead_LaterVersion(t *testing.T) {
	unknown := protowire.AppendTag(nil, 99, protowire.BytesType)
	unknown = protowire.AppendString(unknown, "new")
	unknown = protowire.AppendTag(unknown, 98, protowire.Fixed64Type)
	unknown = protowire.AppendFixed64(unknown, 7)
	var s snapshotpb.Snapshot
	if err := proto.Unmarshal(written(t, example()), &s); err != nil {
		t.Fatal(err)
	}
	s.Version = 7
	s.ProtoReflect().SetUnknown(unknown)
	for _, target := range s.Targets {
		target.ProtoReflect().SetUnknown(unknown)
		for _, m := range target.Methods {
			m.ProtoReflect().SetUnknown(unknown)
			m.Knowledge.ProtoReflect().SetUnknown(unknown)
			m.Knowledge.Latency.ProtoReflect().SetUnknown(unknown)
			m.Knowledge.Latency.Mapping.ProtoReflect().SetUnknown(unknown)
		}
	}
	b, err := proto.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := snapshot.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := differ(example(), got); diff != "" {
		t.Error(diff)
	}
}

// ofSketch is a snapshot of one method with the sketch.
func ofSketch(t testing.TB, sketch *sketchpb.DDSketch) []byte {
	t.Helper()
	return marshalled(t, &snapshotpb.Method{Name: "/m", Knowledge: &snapshotpb.Knowledge{Latency: sketch}})
}

func marshalled(t testing.TB, methods ...*snapshotpb.Method) []byte {
	t.Helper()
	b, err := proto.Marshal(&snapshotpb.Snapshot{
		Version: 1, Complete: []uint32{1}, Targets: []*snapshotpb.Target{{Name: "t", Methods: methods}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRead_Refuses(t *testing.T) {
	mapped := func(change func(*sketchpb.DDSketch)) []byte {
		s := sketch.Counts{{Bucket: 400, Calls: 1}, {Bucket: 401, Calls: 2}}.DDSketch().ToProto()
		change(s)
		return ofSketch(t, s)
	}
	gamma := func(gamma float64) []byte { return mapped(func(s *sketchpb.DDSketch) { s.Mapping.Gamma = gamma }) }
	count := func(calls float64) []byte {
		return mapped(func(s *sketchpb.DDSketch) { s.PositiveValues.ContiguousBinCounts[1] = calls })
	}
	bin := func(bin int32) []byte {
		return mapped(func(s *sketchpb.DDSketch) { s.PositiveValues.BinCounts = map[int32]float64{bin: 1} })
	}
	class := func(name string) []byte {
		return marshalled(t, &snapshotpb.Method{Name: "/m", Classes: []*snapshotpb.Class{{Name: name}}})
	}
	for _, c := range []struct {
		name, want string
		snapshot   []byte
	}{
		{"nothing", "empty", nil},
		{"text", "not a snapshot, or truncated", []byte(`{"targets": [{"name": "a"}]}`)},
		{"zeros", "not a snapshot, or truncated", make([]byte, 100)},
		{"another message", "not a snapshot, or truncated: no version", []byte{0x3a, 1, 'x'}},
		{"no version", "not a snapshot, or truncated: no version",
			mustMarshal(t, &snapshotpb.Snapshot{Complete: []uint32{0}})},
		{"a target too few", "truncated: 0 of 3 targets",
			mustMarshal(t, &snapshotpb.Snapshot{Version: 1, Complete: []uint32{1, 2}})},
		{"a target without a name", "target 1: no name",
			mustMarshal(t, &snapshotpb.Snapshot{Version: 1, Complete: []uint32{1}, Targets: []*snapshotpb.Target{{}}})},
		{"calls a second", `target "t": calls_per_second NaN: must be 0 to 1e+09`, mustMarshal(t, &snapshotpb.Snapshot{
			Version: 1, Complete: []uint32{1}, Targets: []*snapshotpb.Target{{Name: "t", CallsPerSecond: math.NaN()}}})},
		{"a method without a name", `target "t": method 1: no name`, marshalled(t, &snapshotpb.Method{})},
		{"a class without a name", `target "t": method "/m": class 1: no name`, class("")},
		{"a class with a long name", "name of 65 bytes: must be at most 64", class(strings.Repeat("x", 65))},
		{"no mapping", `target "t": method "/m": latency: mapping {`,
			mapped(func(s *sketchpb.DDSketch) { s.Mapping = nil })},
		{"another gamma", "mapping {", gamma(1.01)},
		{"gamma NaN", "mapping {", gamma(math.NaN())},
		{"another offset", "mapping {", mapped(func(s *sketchpb.DDSketch) { s.Mapping.IndexOffset++ })},
		{"linearly interpolated", "mapping {",
			mapped(func(s *sketchpb.DDSketch) { s.Mapping.Interpolation = sketchpb.IndexMapping_LINEAR })},
		{"fewer than no calls", "-1 calls: must be 0 to 1e+15 in total", count(-1)},
		{"NaN calls", "NaN calls", count(math.NaN())},
		{"endless calls", "+Inf calls", count(math.Inf(1))},
		{"too many calls", "1e+300 calls", count(1e300)},
		{"NaN zeros", "NaN calls", mapped(func(s *sketchpb.DDSketch) { s.ZeroCount = math.NaN() })},
		{"negative latencies", "latencies must not be negative",
			mapped(func(s *sketchpb.DDSketch) { s.NegativeValues = &sketchpb.Store{BinCounts: map[int32]float64{1: 1}} })},
		{"the bin behind the last", "for 1 µs to 10 min", bin(int32(sketch.FirstBin + sketch.Buckets))},
		{"the bin before the first", "for 1 µs to 10 min", bin(int32(sketch.FirstBin - 1))},
		{"bins beyond the last", "for 1 µs to 10 min",
			mapped(func(s *sketchpb.DDSketch) { s.PositiveValues.ContiguousBinIndexOffset = math.MaxInt32 })},
		{"a negative age", "outcome: age -1ns", ofOutcomes(t, &snapshotpb.Outcome{Age: -1})},
		{"an age of years", "must be 0 to 24h0m0s", ofOutcomes(t, &snapshotpb.Outcome{Age: math.MaxInt64})},
		{"many hedges", "outcome: hedges 5: must be 0 to 4", ofOutcomes(t, &snapshotpb.Outcome{Hedges: 5})},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := snapshot.Read(bytes.NewReader(c.snapshot))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// endless is an unbounded reader of one unknown field after another.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = [2]byte{0x18, 1}[(e.read+i)%2]
	}
	e.read += len(b)
	return len(b), nil
}

// TestRead_Endless stops at the bound.
func TestRead_Endless(t *testing.T) {
	longtest.Only(t)
	var e endless
	_, err := snapshot.Read(&e)
	if err == nil || !strings.Contains(err.Error(), "larger than 67108864 bytes") || e.read > 70<<20 {
		t.Errorf("the error after %d bytes is %v", e.read, err)
	}
}

// TestWriter_LeavesOutWhatIsNoUTF8 has names that protobuf cannot hold.
func TestWriter_LeavesOutWhatIsNoUTF8(t *testing.T) {
	var b bytes.Buffer
	w := snapshot.Writer{To: &b}
	k := trigger.Knowledge{Primaries: sketch.Counts{{Bucket: 7, Calls: 1}}}
	target := &snapshot.TargetKnowledge{Methods: map[string]*snapshot.MethodKnowledge{
		"/good": {Knowledge: k, Classes: map[string]trigger.Knowledge{"\xff": k, "good": k}}, "/\xff": {Knowledge: k},
	}}
	for _, name := range []string{"good", "\xff"} {
		if err := w.Target(name, target); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := snapshot.Read(&b)
	if err != nil || len(got) != 1 || len(got["good"].Methods) != 1 || len(got["good"].Methods["/good"].Classes) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
