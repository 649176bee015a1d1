package registry

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// The bounds of a snapshot, which may come from an untrusted source. A scheduler with the default
// of 5,000 methods writes a quarter of maxSnapshot, even if all of them are busy.
const (
	maxSnapshot = 64 << 20 // bytes
	maxCalls    = 1e15     // of a method
)

type learnedKey struct {
	target, method string
	class          string // "": the method
}

func readSnapshots(all []io.Reader) (map[learnedKey]sketch.Counts, error) {
	sketches := map[learnedKey][]*sketchpb.DDSketch{}
	for _, from := range all {
		targets, err := readTargets(from)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			for _, m := range t.Methods {
				add := func(class string, k *snapshotpb.Knowledge) {
					key := learnedKey{t.Name, m.Name, class}
					sketches[key] = append(sketches[key], k.GetLatency())
				}
				add("", m.Knowledge)
				for _, c := range m.Classes {
					if c.Name == "" || len(c.Name) > maxClassName {
						return nil, fmt.Errorf("target %.100q: method %.100q: class %.100q: name must be 1 to %d bytes",
							t.Name, m.Name, c.Name, maxClassName)
					}
					add(c.Name, c.Knowledge)
				}
			}
		}
	}
	known := map[learnedKey]sketch.Counts{}
	for k, same := range sketches {
		if k.target == "" || k.method == "" {
			return nil, fmt.Errorf("target %.100q: method %.100q: name must not be empty", k.target, k.method)
		}
		var err error
		if known[k], err = countsOf(same); err != nil {
			return nil, fmt.Errorf("target %.100q: method %.100q: class %q: %w", k.target, k.method, k.class, err)
		}
	}
	return known, nil
}

func readTargets(from io.Reader) ([]*snapshotpb.Target, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxSnapshot+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxSnapshot:
		return nil, fmt.Errorf("larger than %d bytes", maxSnapshot)
	case len(b) == 0:
		return nil, errors.New("empty")
	}
	var message snapshotpb.Snapshot
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &message); err != nil {
		return nil, fmt.Errorf("not a snapshot, or truncated: %w", err)
	}
	complete := uint64(0)
	for _, n := range message.Complete {
		complete += uint64(n)
	}
	switch {
	case message.Version == 0:
		return nil, errors.New("not a snapshot, or truncated: no version")
	case complete != uint64(len(message.Targets)):
		return nil, fmt.Errorf("truncated: %d of %d targets", len(message.Targets), complete)
	}
	return message.Targets, nil
}

var written = sketch.Counts{}.DDSketch().ToProto().GetMapping()

func countsOf(all []*sketchpb.DDSketch) (c sketch.Counts, err error) {
	var sums [sketch.Buckets]float64
	total := 0.0
	add := func(bin int64, calls float64) {
		bucket := bin - int64(sketch.FirstBin)
		total += calls
		switch {
		case calls == 0 || err != nil:
		case bucket < 0 || bucket >= sketch.Buckets:
			err = fmt.Errorf("bin %d: must be %d to %d, for 1 µs to 10 min",
				bin, sketch.FirstBin, sketch.FirstBin+sketch.Buckets-1)
		case !(calls >= 0 && total <= maxCalls):
			err = fmt.Errorf("bin %d: %v calls: must be 0 to %v in total", bin, calls, maxCalls)
		default:
			sums[bucket] += calls
		}
	}
	for _, s := range all {
		m, bins := s.GetMapping(), s.GetPositiveValues()
		if below := s.GetNegativeValues(); len(below.GetBinCounts())+len(below.GetContiguousBinCounts()) > 0 {
			return nil, errors.New("latencies must not be negative")
		}
		if len(bins.GetBinCounts())+len(bins.GetContiguousBinCounts()) > 0 &&
			(m.GetInterpolation() != written.Interpolation || m.GetIndexOffset() != written.IndexOffset ||
				!(math.Abs(m.GetGamma()-written.Gamma) < 1e-9)) {
			return nil, fmt.Errorf("mapping {%v}: must be {%v}", m, written)
		}
		add(int64(sketch.FirstBin), s.GetZeroCount())
		for i, calls := range bins.GetContiguousBinCounts() {
			add(int64(bins.GetContiguousBinIndexOffset())+int64(i), calls)
		}
		for bin, calls := range bins.GetBinCounts() {
			add(int64(bin), calls)
		}
	}
	for bucket, calls := range sums {
		if float32(calls) > 0 {
			c = append(c, sketch.Count{Bucket: int32(bucket), Calls: float32(calls)})
		}
	}
	return c, err
}

// restore makes entries for the methods of snapshots that the options select, those with the most
// calls first. Half of the room is left to other methods.
func (r *Registry) restore(snapshots []io.Reader) error {
	known, err := readSnapshots(snapshots)
	if err != nil {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(known), func(a, b learnedKey) int {
		return cmp.Or(cmp.Compare(known[b].Total(), known[a].Total()), strings.Compare(a.target, b.target),
			strings.Compare(a.method, b.method), strings.Compare(a.class, b.class))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.config.Load()
	for _, k := range keys {
		if len(known[k]) == 0 {
			continue
		}
		m := r.Find(k.target, k.method)
		if m == nil {
			s := c.For(k.target, k.method)
			if !s.Selected || r.size() >= c.MaxMethods/2 {
				continue
			}
			m = r.newMethod(k.target, k.method, s)
			r.once.MoveToFront(m.entry.place) // methods with fewer calls are removed first
			m.classes.restored = map[string]sketch.Counts{}
		}
		if k.class == "" {
			m.Learner.Restore(known[k])
		} else if len(m.classes.restored) <= MaxClasses {
			m.classes.restored[k.class] = known[k]
		}
	}
	return nil
}

func (r *Registry) WriteSnapshot(to io.Writer) error {
	known := &snapshotpb.Snapshot{}
	if r.Made() {
		for _, m := range r.all() {
			message := m.message(time.Now())
			if message == nil || isInvalid(m.Target.Name) {
				continue
			}
			last := len(known.Targets) - 1
			if last < 0 || known.Targets[last].Name != m.Target.Name {
				known.Targets = append(known.Targets, &snapshotpb.Target{Name: m.Target.Name})
				last++
			}
			known.Targets[last].Methods = append(known.Targets[last].Methods, message)
		}
	}
	// Concatenated messages are one merged message. The end is last, so that no part is a snapshot.
	end := &snapshotpb.Snapshot{Version: 1, Complete: []uint32{uint32(len(known.Targets))}}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(known)
	if err == nil {
		b, err = proto.MarshalOptions{}.MarshalAppend(b, end)
	}
	switch {
	case err != nil:
		return err
	case len(b) > maxSnapshot:
		return fmt.Errorf("larger than %d bytes", maxSnapshot)
	}
	_, err = to.Write(b)
	return err
}

func isInvalid(name string) bool { return name == "" || !utf8.ValidString(name) }

// message returns the latencies of a method and its classes; nil if none are known.
func (m *Method) message(now time.Time) *snapshotpb.Method {
	latency := m.Learner.Primaries(now)
	if len(latency) == 0 || isInvalid(m.Name) {
		return nil
	}
	classes := map[string]sketch.Counts{}
	m.classes.mu.Lock()
	maps.Copy(classes, m.classes.restored)
	m.classes.mu.Unlock()
	for _, c := range m.classes.all() {
		classes[c.Name] = c.Learner.Primaries(now)
	}
	message := &snapshotpb.Method{Name: m.Name, Knowledge: knowledge(latency)}
	for _, name := range slices.Sorted(maps.Keys(classes)) {
		if len(classes[name]) > 0 && !isInvalid(name) {
			message.Classes = append(message.Classes, &snapshotpb.Class{Name: name, Knowledge: knowledge(classes[name])})
		}
	}
	return message
}

func knowledge(latency sketch.Counts) *snapshotpb.Knowledge {
	return &snapshotpb.Knowledge{Latency: latency.DDSketch().ToProto()}
}
