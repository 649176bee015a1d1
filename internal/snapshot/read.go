package snapshot

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/trigger"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// The bounds of a snapshot. A scheduler with the default of 5,000 methods writes a quarter of
// maxBytes, even if all of them are busy.
const (
	maxBytes  = 64 << 20
	maxClass  = 64  // bytes of a class's name
	maxHedges = 4   // of one call
	maxRate   = 1e9 // calls a second
	maxAge    = 24 * time.Hour
)

// Read reads snapshots to their ends and merges them, weighted by the number of calls. It returns
// the knowledge of each target by name.
func Read(all ...io.Reader) (map[string]*TargetKnowledge, error) {
	var messages []*snapshotpb.Target
	for _, from := range all {
		targets, err := readOne(from)
		if err != nil {
			return nil, err
		}
		messages = append(messages, targets...)
	}
	return merged("target", messages, targetIn)
}

func readOne(from io.Reader) ([]*snapshotpb.Target, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxBytes:
		return nil, fmt.Errorf("larger than %d bytes", maxBytes)
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

// merged groups messages by name, converts each group with one, and drops empty results. Merging a
// whole group at once keeps the time linear in the input.
func merged[M interface{ GetName() string }, K any](what string, all []M,
	one func([]M) (known K, some bool, err error)) (map[string]K, error) {
	same := map[string][]M{}
	for i, m := range all {
		if m.GetName() == "" {
			return nil, fmt.Errorf("%s %d: no name", what, i+1)
		}
		same[m.GetName()] = append(same[m.GetName()], m)
	}
	named := map[string]K{}
	for _, name := range slices.Sorted(maps.Keys(same)) {
		known, some, err := one(same[name])
		if err != nil {
			return nil, fmt.Errorf("%s %.100q: %w", what, name, err)
		}
		if some {
			named[name] = known
		}
	}
	return named, nil
}

func targetIn(same []*snapshotpb.Target) (*TargetKnowledge, bool, error) {
	var t TargetKnowledge
	var methods []*snapshotpb.Method
	for _, m := range same {
		if rate := m.CallsPerSecond; !(rate >= 0 && rate <= maxRate) {
			return nil, false, fmt.Errorf("calls_per_second %v: must be 0 to %v", rate, maxRate)
		}
		t.CallsPerSecond = max(t.CallsPerSecond, m.CallsPerSecond)
		methods = append(methods, m.Methods...)
	}
	var err error
	t.Methods, err = merged("method", methods, methodIn)
	return &t, len(t.Methods) > 0, err
}

func methodIn(same []*snapshotpb.Method) (m *MethodKnowledge, some bool, err error) {
	var classes []*snapshotpb.Class
	for _, m := range same {
		classes = append(classes, m.Classes...)
	}
	m = &MethodKnowledge{}
	if m.Knowledge, err = knowledgeIn(same); err != nil {
		return nil, false, err
	}
	m.Classes, err = merged("class", classes, classIn)
	return m, len(m.Primaries) > 0 || len(m.Classes) > 0, err
}

func classIn(same []*snapshotpb.Class) (trigger.Knowledge, bool, error) {
	if n := len(same[0].Name); n > maxClass {
		return trigger.Knowledge{}, false, fmt.Errorf("name of %d bytes: must be at most %d", n, maxClass)
	}
	k, err := knowledgeIn(same)
	return k, len(k.Primaries) > 0, err
}

// knowledgeIn merges the knowledge of one method, or of one class.
func knowledgeIn[M interface{ GetKnowledge() *snapshotpb.Knowledge }](same []M) (k trigger.Knowledge, err error) {
	var primaries, hedges totals
	for _, m := range same {
		message := m.GetKnowledge()
		if err := primaries.addSketch(message.GetLatency()); err != nil {
			return k, fmt.Errorf("latency: %w", err)
		}
		if err := hedges.addSketch(message.GetHedgeLatency()); err != nil {
			return k, fmt.Errorf("hedge_latency: %w", err)
		}
		for _, o := range message.GetOutcomes() {
			known, err := outcomeIn(o)
			if err != nil {
				return k, fmt.Errorf("outcome: %w", err)
			}
			if len(known.Rest) > 0 {
				k.Outcomes = append(k.Outcomes, known)
			}
		}
	}
	// merges outcomes of the same kind
	return trigger.Knowledge{Primaries: primaries.counts(), Hedges: hedges.counts()}.Plus(k), nil
}

func outcomeIn(o *snapshotpb.Outcome) (trigger.HedgedCalls, error) {
	if age := time.Duration(o.GetAge()); age < 0 || age > maxAge {
		return trigger.HedgedCalls{}, fmt.Errorf("age %v: must be 0 to %v", age, maxAge)
	}
	if o.GetHedges() > maxHedges {
		return trigger.HedgedCalls{}, fmt.Errorf("hedges %d: must be 0 to %d", o.Hedges, maxHedges)
	}
	var rest totals
	err := rest.addSketch(o.GetRest())
	return trigger.HedgedCalls{Age: time.Duration(o.GetAge()), Hedges: int(o.GetHedges()), Rest: rest.counts()}, err
}
