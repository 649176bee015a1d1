package snapshot

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/internal/learn"
	"github.com/grpchedge/hedge/proto/snapshotpb"
	"github.com/grpchedge/hedge/sketch"
)

// version is the version of the format.
const version = 1

// Writer writes a snapshot, a target at a time, so that not all of it is in memory at once.
type Writer struct {
	to      io.Writer
	targets uint32
	bytes   int
}

// NewWriter returns a writer that has written nothing yet.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Target writes what is known of a target. Names that a snapshot cannot have are left out: those that are empty, or no UTF-8.
func (w *Writer) Target(name string, t *Target) error {
	if !writable(name) {
		return nil
	}
	message := &snapshotpb.Target{Name: name, CallsPerSecond: t.CallsPerSecond, Calm: calm(t.Calm)}
	for _, name := range slices.Sorted(maps.Keys(t.Methods)) {
		if writable(name) {
			message.Methods = append(message.Methods, method(name, t.Methods[name]))
		}
	}
	w.targets++
	return w.write(&snapshotpb.Snapshot{Targets: []*snapshotpb.Target{message}})
}

func writable(name string) bool { return name != "" && utf8.ValidString(name) }

// Close ends the snapshot.
func (w *Writer) Close() error {
	return w.write(&snapshotpb.Snapshot{Version: version, Complete: []uint32{w.targets}})
}

// write writes some fields of the snapshot. One message after the other is the message of both.
func (w *Writer) write(part *snapshotpb.Snapshot) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
	if err != nil {
		return err
	}
	if w.bytes += len(b); w.bytes > maxBytes {
		return fmt.Errorf("it would have more than %d bytes", maxBytes)
	}
	_, err = w.to.Write(b)
	return err
}

func calm(c resets.Calm) *snapshotpb.Calm {
	if c == (resets.Calm{}) {
		return nil
	}
	return &snapshotpb.Calm{Since: c.Since.UnixNano(), Until: c.Until.UnixNano()}
}

func method(name string, m *Method) *snapshotpb.Method {
	message := &snapshotpb.Method{Name: name, Knowledge: knowledge(m.Knowledge)}
	for _, name := range slices.Sorted(maps.Keys(m.Classes)) {
		if writable(name) {
			message.Classes = append(message.Classes, &snapshotpb.Class{Name: name, Knowledge: knowledge(m.Classes[name])})
		}
	}
	return message
}

func knowledge(k learn.Knowledge) *snapshotpb.Knowledge {
	message := &snapshotpb.Knowledge{Latency: ddsketch(k.Primaries), HedgeLatency: ddsketch(k.Hedges)}
	for _, o := range k.Outcomes {
		message.Outcomes = append(message.Outcomes, &snapshotpb.Outcome{
			Age: int64(o.Age), Hedges: uint32(o.Hedges), Rest: ddsketch(o.Rest),
		})
	}
	return message
}

// ddsketch returns the counts as DataDog's sketch, in its sparse form where that is shorter; nil without any.
func ddsketch(c sketch.Counts) *sketchpb.DDSketch {
	if len(c) == 0 {
		return nil
	}
	const dense, sparse = 8, 13 // bytes of a bin
	first := int(c[0].Bucket)
	span := int(c[len(c)-1].Bucket) - first + 1
	store := &sketchpb.Store{}
	if len(c)*sparse < span*dense {
		store.BinCounts = make(map[int32]float64, len(c))
		for _, count := range c {
			store.BinCounts[count.Bucket+int32(sketch.FirstIndex)] = float64(count.Calls)
		}
	} else {
		store.ContiguousBinIndexOffset = int32(first + sketch.FirstIndex)
		store.ContiguousBinCounts = make([]float64, span)
		for _, count := range c {
			store.ContiguousBinCounts[int(count.Bucket)-first] = float64(count.Calls)
		}
	}
	return &sketchpb.DDSketch{Mapping: sketch.Mapping().ToProto(), PositiveValues: store}
}
