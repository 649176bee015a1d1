package registry_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/longtest"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

func sketchOf(c ...sketch.Count) *snapshotpb.Knowledge {
	return &snapshotpb.Knowledge{Latency: sketch.Counts(c).DDSketch().ToProto()}
}

// example is a snapshot of two targets, and its latencies.
func example() (*snapshotpb.Snapshot, map[string]sketch.Counts) {
	get := sketch.Counts{{Bucket: 400, Calls: 90}, {Bucket: 401, Calls: 0.5}, {Bucket: 600, Calls: 9.5}}
	big := sketch.Counts{{Bucket: 600, Calls: 9}}
	many := sketch.Counts{{Bucket: 100, Calls: 1e6}}
	return &snapshotpb.Snapshot{Version: 1, Complete: []uint32{2}, Targets: []*snapshotpb.Target{
		{Name: "a", Methods: []*snapshotpb.Method{{Name: "/p.S/Get", Knowledge: sketchOf(get...),
			Classes: []*snapshotpb.Class{{Name: "big", Knowledge: sketchOf(big...)}}}}},
		{Name: "b", Methods: []*snapshotpb.Method{{Name: "/p.S/Get", Knowledge: sketchOf(many...)}}},
	}}, map[string]sketch.Counts{"a /p.S/Get ": get, "a /p.S/Get big": big, "b /p.S/Get ": many}
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ofMethods returns a snapshot of one target.
func ofMethods(t testing.TB, methods ...*snapshotpb.Method) []byte {
	t.Helper()
	return marshal(t, &snapshotpb.Snapshot{
		Version: 1, Complete: []uint32{1}, Targets: []*snapshotpb.Target{{Name: "t", Methods: methods}},
	})
}

// rewritten restores snapshots, and returns a snapshot of the result.
func rewritten(t testing.TB, snapshots ...[]byte) []byte {
	t.Helper()
	var opts []hedge.Option
	for _, b := range snapshots {
		opts = append(opts, hedge.WithSnapshot(bytes.NewReader(b)))
	}
	var b bytes.Buffer
	if err := hedgetest.All(t, opts...).WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestSnapshot_Read reads an example: as it is, rewritten, with fields of a later version, twice in
// one reader, and from two readers.
func TestSnapshot_Read(t *testing.T) {
	message, want := example()
	b := marshal(t, message)
	unknown := protowire.AppendTag(nil, 99, protowire.BytesType)
	unknown = protowire.AppendString(unknown, "new")
	later := proto.CloneOf(message)
	later.Version = 7
	get := later.Targets[0].Methods[0]
	for _, m := range []proto.Message{later, later.Targets[0], get, get.Knowledge, get.Knowledge.Latency.Mapping} {
		m.ProtoReflect().SetUnknown(unknown)
	}
	reader := func(b []byte) io.Reader { return bytes.NewReader(b) }
	for _, tc := range []struct {
		name    string
		times   float32
		readers []io.Reader
	}{
		{"once", 1, []io.Reader{reader(b)}},
		{"later version", 1, []io.Reader{reader(marshal(t, later))}},
		{"concatenated", 2, []io.Reader{reader(append(bytes.Clone(b), b...))}},
		{"two readers", 2, []io.Reader{reader(b), reader(b)}},
	} {
		got, err := registry.ReadSnapshots(tc.readers...)
		for key := range want {
			want := slices.Clone(want[key])
			for i := range want {
				want[i].Calls *= tc.times
			}
			if diff := cmp.Diff(want, got[key]); err != nil || diff != "" {
				t.Errorf("%s: %s differs, or is not read: %v %s", tc.name, key, err, diff)
			}
		}
	}
	var again snapshotpb.Snapshot
	if err := proto.Unmarshal(rewritten(t, b), &again); err != nil {
		t.Fatal(err)
	}
	if got := again.Targets[0]; len(again.Targets) != 2 || len(got.Methods[0].Classes) != 1 {
		t.Errorf("written again: %v", &again)
	}
}

// TestSnapshot_Truncated reads the first bytes of a snapshot, and fails at every length.
func TestSnapshot_Truncated(t *testing.T) {
	message, _ := example()
	b := marshal(t, &snapshotpb.Snapshot{Targets: message.Targets}) // the version is written last
	b = append(b, marshal(t, &snapshotpb.Snapshot{Version: 1, Complete: message.Complete})...)
	for n := range b {
		if got, err := registry.ReadSnapshots(bytes.NewReader(b), bytes.NewReader(b[:n])); err == nil {
			t.Errorf("the first %d of %d bytes are read as %v", n, len(b), got)
		}
	}
	failed := errors.New("disk failure")
	if _, err := registry.ReadSnapshots(iotest.ErrReader(failed)); !errors.Is(err, failed) {
		t.Errorf("the error is %v, want the reader's", err)
	}
}

func TestSnapshot_Refuses(t *testing.T) {
	mapped := func(change func(*sketchpb.DDSketch)) []byte {
		k := sketchOf(sketch.Count{Bucket: 400, Calls: 1}, sketch.Count{Bucket: 401, Calls: 2})
		change(k.Latency)
		return ofMethods(t, &snapshotpb.Method{Name: "/m", Knowledge: k})
	}
	gamma := func(gamma float64) []byte { return mapped(func(s *sketchpb.DDSketch) { s.Mapping.Gamma = gamma }) }
	count := func(calls float64) []byte {
		return mapped(func(s *sketchpb.DDSketch) { s.PositiveValues.ContiguousBinCounts[1] = calls })
	}
	bin := func(bin int32) []byte {
		return mapped(func(s *sketchpb.DDSketch) { s.PositiveValues.BinCounts = map[int32]float64{bin: 1} })
	}
	class := func(name string) []byte {
		return ofMethods(t, &snapshotpb.Method{Name: "/m", Classes: []*snapshotpb.Class{{Name: name}}})
	}
	target := func(target *snapshotpb.Target) []byte {
		return marshal(t, &snapshotpb.Snapshot{Version: 1, Complete: []uint32{1}, Targets: []*snapshotpb.Target{target}})
	}
	for _, tc := range []struct {
		name, want string
		snapshot   []byte
	}{
		{"nothing", "empty", nil},
		{"text", "not a snapshot, or truncated", []byte(`{"targets": [{"name": "a"}]}`)},
		{"another message", "not a snapshot, or truncated: no version", []byte{0x3a, 1, 'x'}},
		{"too few targets", "truncated: 0 of 3 targets",
			marshal(t, &snapshotpb.Snapshot{Version: 1, Complete: []uint32{1, 2}})},
		{"target without a name", `target "": method "/m": name must not be empty`,
			target(&snapshotpb.Target{Methods: []*snapshotpb.Method{{Name: "/m"}}})},
		{"method without a name", `target "t": method "": name must not be empty`, ofMethods(t, &snapshotpb.Method{})},
		{"class without a name", "must be 1 to 64 bytes", class("")},
		{"class with a long name", "must be 1 to 64 bytes", class(strings.Repeat("x", 65))},
		{"no mapping", `target "t": method "/m": class "": mapping {`,
			mapped(func(s *sketchpb.DDSketch) { s.Mapping = nil })},
		{"another gamma", "mapping {", gamma(1.01)},
		{"gamma NaN", "mapping {", gamma(math.NaN())},
		{"another offset", "mapping {", mapped(func(s *sketchpb.DDSketch) { s.Mapping.IndexOffset++ })},
		{"linearly interpolated", "mapping {",
			mapped(func(s *sketchpb.DDSketch) { s.Mapping.Interpolation = sketchpb.IndexMapping_LINEAR })},
		{"negative calls", "-1 calls: must be 0 to 1e+15 in total", count(-1)},
		{"NaN calls", "NaN calls", count(math.NaN())},
		{"endless calls", "+Inf calls", count(math.Inf(1))},
		{"NaN zeros", "NaN calls", mapped(func(s *sketchpb.DDSketch) { s.ZeroCount = math.NaN() })},
		{"negative latencies", "latencies must not be negative",
			mapped(func(s *sketchpb.DDSketch) { s.NegativeValues = &sketchpb.Store{BinCounts: map[int32]float64{1: 1}} })},
		{"bin above the last", "for 1 µs to 10 min", bin(int32(sketch.FirstBin + sketch.Buckets))},
		{"bin below the first", "for 1 µs to 10 min", bin(int32(sketch.FirstBin - 1))},
		{"bins beyond the last", "for 1 µs to 10 min",
			mapped(func(s *sketchpb.DDSketch) { s.PositiveValues.ContiguousBinIndexOffset = math.MaxInt32 })},
	} {
		_, err := registry.ReadSnapshots(bytes.NewReader(tc.snapshot))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: the error is %v, want one with %q", tc.name, err, tc.want)
		}
	}
}

// TestSnapshot_Memory reads snapshots that take as much memory for their size as possible.
func TestSnapshot_Memory(t *testing.T) {
	size := longtest.Size(1<<18, 8<<20)
	message, _ := example()
	snapshots := map[string][][]byte{
		"targets":        {bytes.Repeat([]byte{2<<3 | 2, 0}, size/2)},
		"methods":        {ofMethods(t, make([]*snapshotpb.Method, size/2)...)},
		"classes":        {ofMethods(t, &snapshotpb.Method{Name: "/m", Classes: make([]*snapshotpb.Class, size/2)})},
		"many snapshots": slices.Repeat([][]byte{marshal(t, message)}, size/1000),
	}
	var same []*snapshotpb.Method
	for i := range size / 250 {
		one := sketchOf(sketch.Count{Bucket: int32(7 * i % 1000), Calls: 1})
		same = append(same, &snapshotpb.Method{Name: "/m", Knowledge: one})
	}
	snapshots["the same method"] = [][]byte{ofMethods(t, same...)}
	for name, all := range snapshots {
		var readers []io.Reader
		length := 0
		for _, b := range all {
			readers, length = append(readers, bytes.NewReader(b)), length+len(b)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = registry.ReadSnapshots(readers...)
		runtime.ReadMemStats(&after)
		if allocated := int(after.TotalAlloc - before.TotalAlloc); allocated > 100*length+1<<20 {
			t.Errorf("%s: %d bytes are allocated to read %d", name, allocated, length)
		}
	}
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

func TestSnapshot_Endless(t *testing.T) {
	longtest.Only(t)
	var e endless
	_, err := registry.ReadSnapshots(&e)
	if err == nil || !strings.Contains(err.Error(), "larger than 67108864 bytes") || e.read > 70<<20 {
		t.Errorf("the error after %d bytes is %v", e.read, err)
	}
}

// TestSnapshot_NotUTF8 leaves out names that protobuf cannot hold.
func TestSnapshot_NotUTF8(t *testing.T) {
	s := hedgetest.All(t)
	for _, name := range [][2]string{{"good", "/p.S/Get"}, {"good", "/\xff/Get"}, {"\xff", "/p.S/Get"}} {
		for range 100 {
			hedgetest.Call(t, s, name[0], name[1], 0)
		}
	}
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	if got, err := registry.ReadSnapshots(&b); err != nil || len(got) != 1 || got["good /p.S/Get "].Total() == 0 {
		t.Errorf("read %v, %v; want the one method with a valid name", got, err)
	}
}

// FuzzSnapshot reads anything: it is an error, or latencies within their bounds that are restored
// and written.
func FuzzSnapshot(f *testing.F) {
	message, _ := example()
	whole := marshal(f, message)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(append(bytes.Clone(whole), whole...))
	f.Fuzz(func(t *testing.T, b []byte) {
		known, err := registry.ReadSnapshots(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, c := range known {
			last := int32(-1)
			for _, count := range c {
				if count.Bucket <= last || count.Bucket >= sketch.Buckets || !(count.Calls > 0) || count.Calls > 1e15 {
					t.Fatalf("latencies out of their bounds or order: %v", c)
				}
				last = count.Bucket
			}
		}
		if _, err := registry.ReadSnapshots(bytes.NewReader(rewritten(t, b))); err != nil {
			t.Fatalf("a rewritten snapshot is rejected: %v", err)
		}
	})
}
