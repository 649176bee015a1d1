package settings_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/grpchedge/hedge"
	"github.com/grpchedge/hedge/internal/call"
	"github.com/grpchedge/hedge/internal/race"
	"github.com/grpchedge/hedge/internal/registry"
	"github.com/grpchedge/hedge/internal/testserver/hedgetest"
	"github.com/grpchedge/hedge/stats"
)

const ms = time.Millisecond

// perCall is a way to give call options to one call. says is their effect: Off, After three
// milliseconds, or none.
type perCall struct {
	name    string
	context []grpc.CallOption
	options []grpc.CallOption
	says    string
}

var (
	off, after, late = hedge.Off(), hedge.After(3 * ms), hedge.After(time.Hour)

	perCalls = []perCall{
		{name: "nothing"},
		{name: "Off", options: []grpc.CallOption{off}, says: "Off"},
		{name: "After", options: []grpc.CallOption{after}, says: "After"},
		{name: "Off in the context", context: []grpc.CallOption{off}, says: "Off"},
		{name: "After in the context", context: []grpc.CallOption{after}, says: "After"},
		{name: "Off, After in the context", context: []grpc.CallOption{after}, options: []grpc.CallOption{off},
			says: "Off"},
		{name: "After, Off in the context", context: []grpc.CallOption{off}, options: []grpc.CallOption{after},
			says: "After"},
		{name: "After, a later one in the context", context: []grpc.CallOption{late}, options: []grpc.CallOption{after},
			says: "After"},
		{name: "the last one of two", options: []grpc.CallOption{off, after}, says: "After"},
		{name: "the last one of two in the context", context: []grpc.CallOption{after, off}, says: "Off"},
	}
)

// begin begins a call, and returns its delay and the reason why it has none.
func (p perCall) begin(s *hedge.Scheduler, method string) (delay time.Duration, reason stats.Reason) {
	ctx := context.Background()
	if p.context != nil {
		ctx = hedge.NewContext(ctx, p.context...)
	}
	var o stats.Outcome
	opts := append([]grpc.CallOption{hedge.Report(&o)}, p.options...)
	c := call.Begin((*registry.Registry)(s), ctx, "t", method, nil, opts...)
	c.Inspect(nil)
	var plan race.Plan
	if c.Hedged {
		plan = c.Plan()
	}
	return plan.Delay, o.Reason
}

// stops has the options that leave calls unhedged, and the reason. After does not override them.
var stops = map[string]stats.Reason{
	"WithOff":           stats.SwitchedOff,
	"WithMethodOptions": stats.SwitchedOff, // tested with WithOff
	"WithTargetOptions": stats.SwitchedOff,
	"WithDryRun":        stats.DryRun,
}

// Every option in every scope, with every way to give call options: Off overrides them all, and
// After overrides the options that choose methods and delays.
func TestRule20_EveryOptionAndACall(t *testing.T) {
	for _, o := range everyOption(t) {
		selects := o.call == "After" && !o.target
		method := "/s/M"
		base := []hedge.Option{hedge.WithServiceConfig("{}")}
		if selects {
			method = "/x/NotSelected"
		} else {
			base = append(base, hedge.WithAllMethods())
		}
		for _, at := range scopes {
			for i, value := range []hedge.Option{o.a, o.b} {
				if value == nil || !at.may(o) {
					continue
				}
				s := hedgetest.New(t, append(base, at.at(value))...)
				for _, p := range perCalls {
					delay, reason := p.begin(s, method)
					where := fmt.Sprintf("%s for the %s, %s", o.name, at.name, p.name)
					stopped, stop := stops[o.name]
					stop = stop && i == 0 // with its second value, a switch is off
					switch {
					case p.says == "Off" && (delay != 0 || reason != stats.SwitchedOff):
						t.Errorf("%s: delay %v, reason %q", where, delay, reason)
					case p.says == "" && selects && o.name != "WithAllMethods" && reason != stats.NotSelected &&
						reason != stats.NoDescriptor:
						t.Errorf("%s: reason %q", where, reason)
					case p.says != "After", reason == stats.InControlGroup && o.name == "WithControl":
					case stop && (delay != 0 || reason != stopped):
						t.Errorf("%s: delay %v, reason %q, want %q", where, delay, reason, stopped)
					case !stop && (delay != 3*ms || reason != stats.NoReason):
						t.Errorf("%s: delay %v, reason %q, want 3ms", where, delay, reason)
					}
				}
			}
		}
	}
}
