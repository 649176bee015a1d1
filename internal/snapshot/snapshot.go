// Package snapshot reads and writes the knowledge of schedulers, as messages of proto/snapshotpb. A
// snapshot may come from an untrusted source, so reads check and bound it.
package snapshot

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/DataDog/sketches-go/ddsketch/pb/sketchpb"
	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/sketch"
	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// TargetKnowledge is the knowledge of one target.
type TargetKnowledge struct {
	Methods        map[string]*MethodKnowledge // by their full names
	CallsPerSecond float64                     // of all methods, the largest where several are merged; 0: not known
}

// MethodKnowledge is the knowledge of a method: of all its requests, and of each class.
type MethodKnowledge struct {
	trigger.Knowledge
	Classes map[string]trigger.Knowledge // by name
}

// Writer writes a snapshot, a target at a time, so that not all of it is in memory at once.
type Writer struct {
	To      io.Writer
	targets uint32
	bytes   int
}

// Target writes the knowledge of a target. It omits names that are empty or not UTF-8: a snapshot
// cannot hold them.
func (w *Writer) Target(name string, t *TargetKnowledge) error {
	if cannotHave(name) {
		return nil
	}
	message := &snapshotpb.Target{Name: name, CallsPerSecond: t.CallsPerSecond}
	for _, name := range names(t.Methods) {
		m := t.Methods[name]
		method := &snapshotpb.Method{Name: name, Knowledge: knowledge(m.Knowledge)}
		for _, name := range names(m.Classes) {
			method.Classes = append(method.Classes, &snapshotpb.Class{Name: name, Knowledge: knowledge(m.Classes[name])})
		}
		message.Methods = append(message.Methods, method)
	}
	w.targets++
	return w.write(&snapshotpb.Snapshot{Targets: []*snapshotpb.Target{message}})
}

// names returns the valid names, sorted.
func names[K any](known map[string]K) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(known)), cannotHave)
}

func cannotHave(name string) bool { return name == "" || !utf8.ValidString(name) }

func (w *Writer) Close() error {
	return w.write(&snapshotpb.Snapshot{Version: 1, Complete: []uint32{w.targets}})
}

// write appends fields of the snapshot. Concatenated messages are one merged message.
func (w *Writer) write(part *snapshotpb.Snapshot) error {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
	if err != nil {
		return err
	}
	if w.bytes += len(b); w.bytes > maxBytes {
		return fmt.Errorf("larger than %d bytes", maxBytes)
	}
	_, err = w.To.Write(b)
	return err
}

func knowledge(k trigger.Knowledge) *snapshotpb.Knowledge {
	message := &snapshotpb.Knowledge{Latency: ddsketch(k.Primaries), HedgeLatency: ddsketch(k.Hedges)}
	for _, o := range k.Outcomes {
		message.Outcomes = append(message.Outcomes, &snapshotpb.Outcome{
			Age: int64(o.Age), Hedges: uint32(o.Hedges), Rest: ddsketch(o.Rest),
		})
	}
	return message
}

// ddsketch returns the counts as DataDog's sketch; nil without any.
func ddsketch(c sketch.Counts) *sketchpb.DDSketch {
	if len(c) == 0 {
		return nil
	}
	return c.DDSketch().ToProto()
}
