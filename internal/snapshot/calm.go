package snapshot

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// longer returns the calm that lasts longer, either of which may be nil for none.
func longer(a, b *resets.Calm) *resets.Calm {
	if a == nil || b != nil && b.Until.After(a.Until) {
		return b
	}
	return a
}

func calm(c *resets.Calm) *snapshotpb.Calm {
	if c == nil {
		return nil
	}
	return &snapshotpb.Calm{Since: c.Since.UnixNano(), Until: c.Until.UnixNano()}
}

func calmIn(b []byte) (*resets.Calm, error) {
	var since, until int64
	err := fields(b, func(number protowire.Number, f field) error {
		switch {
		case !f.isNumber():
		case number == 3:
			since = int64(f.number)
		case number == 4:
			until = int64(f.number)
		}
		return nil
	})
	return &resets.Calm{Since: time.Unix(0, since), Until: time.Unix(0, until)}, err
}
