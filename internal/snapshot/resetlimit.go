package snapshot

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// The bounds of a limit of resets.
const (
	maxResets = 60_000    // in a minute: above it a limit is none
	maxSeen   = 1_000_000 // in a minute
)

// ResetLimit is the limit of resets that was learned of a target.
type ResetLimit struct {
	Burst        float64   // the most at once
	PerSecond    float64   // how many more with each second
	Since, Until time.Time // when it was learned, and when it is raised next
	Hold         time.Duration
	SeenAMinute  int // before the connection was cut
	ServerSaidSo bool
}

func (l *ResetLimit) perMinute() float64 { return l.Burst + 60*l.PerSecond }

// check returns an error unless the limit is one.
func (l *ResetLimit) check() error {
	switch {
	case !(l.Burst >= 0 && l.PerSecond >= 0 && l.perMinute() <= maxResets):
		return fmt.Errorf("reset limit: %v resets at once and %v a second, allowed: 0 to %d in a minute", l.Burst, l.PerSecond, maxResets)
	case l.Hold < 0 || l.Hold > maxAge:
		return fmt.Errorf("reset limit: held for %v, allowed: 0 to %v", l.Hold, maxAge)
	case l.SeenAMinute < 0 || l.SeenAMinute > maxSeen:
		return fmt.Errorf("reset limit: %d resets were seen in a minute, allowed: 0 to %d", l.SeenAMinute, maxSeen)
	}
	return nil
}

// lower returns the lower of two limits, either of which may be nil for none.
func lower(a, b *ResetLimit) *ResetLimit {
	if a == nil || b != nil && b.perMinute() < a.perMinute() {
		return b
	}
	return a
}

// resetLimit returns the message of a limit; nil for none, or for one that no reader would accept.
func resetLimit(l *ResetLimit) *snapshotpb.ResetLimit {
	if l == nil {
		return nil
	}
	known := *l
	known.SeenAMinute = min(known.SeenAMinute, maxSeen)
	if known.check() != nil {
		return nil
	}
	return &snapshotpb.ResetLimit{
		Burst: known.Burst, PerSecond: known.PerSecond, Since: nanos(known.Since), Until: nanos(known.Until),
		Hold: int64(known.Hold), SeenAMinute: uint32(known.SeenAMinute), ServerSaidSo: known.ServerSaidSo,
	}
}

func resetLimitIn(b []byte) (*ResetLimit, error) {
	l := &ResetLimit{}
	err := fields(b, func(number protowire.Number, f field) error {
		switch {
		case number == 1 && f.kind == protowire.Fixed64Type:
			l.Burst = math.Float64frombits(f.number)
		case number == 2 && f.kind == protowire.Fixed64Type:
			l.PerSecond = math.Float64frombits(f.number)
		case !f.isNumber():
		case number == 3:
			l.Since = timeOf(int64(f.number))
		case number == 4:
			l.Until = timeOf(int64(f.number))
		case number == 5:
			l.Hold = time.Duration(f.number)
		case number == 6:
			l.SeenAMinute = int(uint32(f.number))
		case number == 7:
			l.ServerSaidSo = f.number != 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, l.check()
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}
