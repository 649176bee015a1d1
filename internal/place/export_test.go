package place

import "time"

const Mute = mute

// Asked notes that a hedge is sent there at now.
func (b *Backend) HedgeSent(now time.Time) { b.hedgeSent(now) }
