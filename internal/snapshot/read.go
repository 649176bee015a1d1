package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/grpchedge/hedge/internal/learn"
)

// The bounds of a snapshot. A scheduler with 64 MiB of memory writes a tenth of them at most.
const (
	maxBytes    = 256 << 20
	maxParts    = 1 << 18 // targets; and methods with their classes
	maxOutcomes = 1 << 10 // of one method or class
	maxClass    = 64      // bytes of a class's name
	maxHedges   = 4       // of one call
	maxRate     = 1e9     // calls a second
	maxAge      = 24 * time.Hour
)

// Read reads a snapshot to its end.
//
// Messages are taken apart by hand, because the generated code would make an object of a hundred bytes from each two bytes
// that a hostile snapshot has.
func Read(from io.Reader) (Snapshot, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxBytes+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxBytes)
	case len(b) == 0:
		return nil, errors.New("it is empty")
	}
	r := reader{into: Snapshot{}}
	return r.into, r.snapshot(b)
}

// reader counts what it has read.
type reader struct {
	into    Snapshot
	targets uint64
	methods int // and classes
}

func (r *reader) snapshot(b []byte) error {
	var complete, version uint64
	ended := false
	err := fields(b, func(number protowire.Number, f field) error {
		switch {
		case number == 1 && f.isNumber():
			version = f.number
		case number == 2 && f.isBytes():
			return r.target(f.bytes)
		case number == 15 && f.isNumber():
			complete, ended = complete+uint64(uint32(f.number)), true
		case number == 15 && f.isBytes(): // several, packed
			for b := f.bytes; len(b) > 0; {
				n, size := protowire.ConsumeVarint(b)
				if size < 0 {
					return protowire.ParseError(size)
				}
				complete, ended, b = complete+uint64(uint32(n)), true, b[size:]
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case version == 0 && !ended:
		return errors.New("it has no version: it is cut off, or no snapshot of a scheduler")
	case version == 0:
		return errors.New("it has no version: it is no snapshot of a scheduler")
	case complete != r.targets:
		return fmt.Errorf("it has %d targets where %d were written: it is cut off", r.targets, complete)
	}
	return nil
}

func (r *reader) target(b []byte) error {
	if r.targets++; r.targets > maxParts {
		return fmt.Errorf("it has more than %d targets", maxParts)
	}
	name, t := "", Target{}
	err := fields(b, func(number protowire.Number, f field) (err error) {
		switch {
		case number == 1 && f.isBytes():
			name = string(f.bytes)
		case number == 2 && f.isBytes():
			err = r.method(&t, f.bytes)
		case number == 3 && f.kind == protowire.Fixed64Type:
			t.CallsPerSecond = math.Float64frombits(f.number)
		}
		return err
	})
	if wrong := checkName(name); wrong != nil {
		return fmt.Errorf("target %d: %w", r.targets, cmp.Or(err, wrong))
	}
	if rate := t.CallsPerSecond; err == nil && !(rate >= 0 && rate <= maxRate) {
		err = fmt.Errorf("%v calls a second, allowed: 0 to %v", rate, maxRate)
	}
	if err != nil {
		return fmt.Errorf("target %.100q: %w", name, err)
	}
	if r.into[name] != nil || len(t.Methods) > 0 {
		known := t // a copy, so that one without methods takes no memory
		add(r.into, name, &known)
	}
	return nil
}

func (r *reader) method(t *Target, b []byte) error {
	name, m, err := r.part(b, false)
	switch {
	case err != nil && name != "":
		return fmt.Errorf("method %.100q: %w", name, err)
	case err == nil && (len(m.Primaries) > 0 || len(m.Classes) > 0):
		t.Methods = add(t.Methods, name, m)
	}
	return err
}

func (r *reader) class(m *Method, b []byte) error {
	name, c, err := r.part(b, true)
	if err == nil && len(name) > maxClass {
		err = fmt.Errorf("it has %d bytes, allowed: %d", len(name), maxClass)
	}
	if err != nil {
		return fmt.Errorf("class %.100q: %w", name, err)
	}
	if len(c.Primaries) > 0 {
		m.Classes = add(m.Classes, name, c.Knowledge)
	}
	return nil
}

// part reads a method, or a class of one, whose message is the same without classes.
func (r *reader) part(b []byte, class bool) (name string, m *Method, err error) {
	if r.methods++; r.methods > maxParts {
		return "", nil, fmt.Errorf("it has more than %d methods and classes", maxParts)
	}
	m = &Method{}
	err = fields(b, func(number protowire.Number, f field) (err error) {
		switch {
		case !f.isBytes():
		case number == 1:
			name = string(f.bytes)
		case number == 2:
			m.Knowledge, err = knowledgeIn(f.bytes)
		case number == 3 && !class:
			err = r.class(m, f.bytes)
		}
		return err
	})
	return name, m, cmp.Or(err, checkName(name))
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("it has no name")
	case !utf8.ValidString(name):
		return errors.New("its name is not UTF-8")
	}
	return nil
}

func knowledgeIn(b []byte) (k learn.Knowledge, err error) {
	err = fields(b, func(number protowire.Number, f field) (err error) {
		switch {
		case !f.isBytes():
		case number == 1:
			k.Primaries, err = sketchIn(f.bytes, "latency")
		case number == 2:
			k.Hedges, err = sketchIn(f.bytes, "hedge_latency")
		case number == 3 && len(k.Outcomes) == maxOutcomes:
			err = fmt.Errorf("it has more than %d outcomes", maxOutcomes)
		case number == 3:
			var o learn.Outcome
			o, err = outcomeIn(f.bytes)
			k.Outcomes = append(k.Outcomes, o)
		}
		return err
	})
	return k.Plus(learn.Knowledge{}), err // which merges outcomes of the same kind
}

func outcomeIn(b []byte) (o learn.Outcome, err error) {
	err = fields(b, func(number protowire.Number, f field) (err error) {
		switch {
		case number == 1 && f.isNumber():
			if o.Age = time.Duration(f.number); o.Age < 0 || o.Age > maxAge {
				err = fmt.Errorf("outcome: age %v, allowed: 0 to %v", o.Age, maxAge)
			}
		case number == 2 && f.isNumber():
			if f.number > maxHedges {
				return fmt.Errorf("outcome: %d hedges, allowed: 0 to %d", f.number, maxHedges)
			}
			o.Hedges = int(f.number)
		case number == 3 && f.isBytes():
			o.Rest, err = sketchIn(f.bytes, "outcome")
		}
		return err
	})
	return o, err
}

// field is the value of a field: a number, the bits of one or bytes, or something else that no field here has.
type field struct {
	kind   protowire.Type
	number uint64
	bytes  []byte
}

func (f *field) isNumber() bool { return f.kind == protowire.VarintType }
func (f *field) isBytes() bool  { return f.kind == protowire.BytesType }

func fields(b []byte, visit func(protowire.Number, field) error) error {
	for len(b) > 0 {
		number, kind, size := protowire.ConsumeField(b)
		if size < 0 {
			return fmt.Errorf("it is cut off, or no snapshot of a scheduler: %w", protowire.ParseError(size))
		}
		_, _, tag := protowire.ConsumeTag(b)
		f := field{kind: kind}
		switch kind {
		case protowire.VarintType:
			f.number, _ = protowire.ConsumeVarint(b[tag:])
		case protowire.Fixed64Type:
			f.number, _ = protowire.ConsumeFixed64(b[tag:])
		case protowire.BytesType:
			f.bytes, _ = protowire.ConsumeBytes(b[tag:])
		}
		if err := visit(number, f); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
