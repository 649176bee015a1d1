package snapshot

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/grpchedge/hedge/internal/feature/resets"
	"github.com/grpchedge/hedge/proto/snapshotpb"
)

// longer returns the calm that lasts longer.
func longer(a, b resets.Calm) resets.Calm {
	if b.Until.After(a.Until) {
		return b
	}
	return a
}

func calm(c resets.Calm) *snapshotpb.Calm {
	if c == (resets.Calm{}) {
		return nil
	}
	return &snapshotpb.Calm{Since: c.Since.UnixNano(), Until: c.Until.UnixNano()}
}

func calmIn(b []byte) (c resets.Calm, err error) {
	err = fields(b, func(number protowire.Number, f field) error {
		switch {
		case !f.isNumber():
		case number == 3:
			c.Since = time.Unix(0, int64(f.number))
		case number == 4:
			c.Until = time.Unix(0, int64(f.number))
		}
		return nil
	})
	return c, err
}
