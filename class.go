package hedge

import (
	"context"
	"math/bits"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/grpchedge/hedge/internal/engine"
)

// OtherClass is the name of the class of all requests whose class came when a method had sixteen others: see [WithClass].
const OtherClass = engine.OtherClass

// BySize is a class function for [WithClass]: the size of a protobuf request on the wire, in powers of four. Requests that are
// no protobuf messages have no class.
func BySize(_ context.Context, _ string, request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return ""
	}
	return sizes[min((bits.Len(uint(proto.Size(m)))+1)/2, len(sizes)-1)]
}

// sizes are the names of the classes of BySize: class n has the sizes below 4ⁿ.
var sizes = func() (names [engine.MaxClasses]string) {
	for n := range names {
		names[n] = "<" + strconv.Itoa(1<<(2*n)) + "B"
	}
	return names
}()

// ClassStats is what is known of a class of requests of a method: see [WithClass].
type ClassStats struct {
	// Class is the name that the class function gave it, or OtherClass.
	Class string
	// Delay is the age at which a call gets its first hedge now; 0 while the class is being learned.
	Delay time.Duration
	// P50, P90 and P99 are quantiles of what primaries took over the window; 0 while nothing is known.
	P50, P90, P99 time.Duration
	// Choice is what the trigger Auto has in force; zero with another trigger, and while too little is known.
	Choice Choice
}

func newClassStats(c engine.ClassStats) ClassStats {
	row := ClassStats{Class: c.Class, P50: c.P50, P90: c.P90, P99: c.P99}
	if c.Estimate != nil {
		row.Delay, row.Choice = c.Estimate.Delay, newChoice(c.Estimate)
	}
	return row
}
