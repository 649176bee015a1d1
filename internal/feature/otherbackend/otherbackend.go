// Package otherbackend holds hedges back for the sake of where they go: until the connection is ready, until a backend is known
// that the call has not used, and until a silent backend has had the time to answer.
package otherbackend

import (
	"math"
	"time"

	"go.uber.org/atomic"
	"google.golang.org/grpc/connectivity"

	"github.com/grpchedge/hedge/internal/feature"
	"github.com/grpchedge/hedge/stats"
)

// Ready is the gate that waits for the connection.
type Ready struct{}

// Admit holds a hedge back while the connection is not ready. That of a call which is repeated is gone, so its state is not asked.
func (Ready) Admit(d *feature.Due) feature.Verdict {
	return feature.Later(stats.NotReady).If(d.Conn != nil && !d.Report.Repeated && d.Conn.GetState() != connectivity.Ready)
}

// Only is the gate of WithOtherBackendOnly.
type Only struct {
	NoPolicy *atomic.Bool // is set if no policy of package balancer was found
}

// Admit holds a hedge back while no backend is known that the call has not used.
func (o Only) Admit(d *feature.Due) feature.Verdict {
	if d.Conn == nil || d.Report.Repeated {
		return feature.Pass
	}
	o.NoPolicy.Store(!d.Record.HasPolicy())
	return feature.Later(stats.NoOtherBackend).If(!d.Record.Spare(d.N))
}

// Patience is the gate that lets a primary find out whether a silent backend answers at all.
type Patience struct{}

// Admit holds the first hedge back for longer than the usual delay. Of the time until the call's deadline the primary gets a
// quarter at most. A delay that was not learned says nothing about backends.
func (Patience) Admit(d *feature.Due) feature.Verdict {
	if !d.Slow || d.Turn != 1 || d.Estimate == nil {
		return feature.Pass
	}
	limit := time.Duration(math.MaxInt64)
	if deadline, ok := d.Context.Deadline(); ok {
		limit = deadline.Sub(d.Start) / 4
	}
	until := d.Record.PatientDelay(d.Now, d.Delay, limit)
	return feature.Until(until).If(d.Age() < until)
}
