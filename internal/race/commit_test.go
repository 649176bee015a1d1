package race_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

// TestRace_CommitAsTheCallerLeaves has a primary that has failed, a hedge in flight, and a caller whose
// context ends while another goroutine commits. The hedge is canceled.
func TestRace_CommitAsTheCallerLeaves(t *testing.T) {
	for range 2000 {
		caller, leave := context.WithCancel(t.Context())
		var r race.Race
		sent, ended := make(chan struct{}), make(chan struct{})
		e := &entrant{do: func() error { <-sent; return errors.New("broken") }}
		a := &attempts{entrant: e, hedge: func(_ int, ctx context.Context) error {
			close(sent)
			<-ctx.Done()
			close(ended)
			return ctx.Err()
		}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			<-sent
			for caller.Err() == nil {
			}
			r.Commit(func(*race.State) {})
		}()
		go func() {
			<-sent
			time.Sleep(50 * time.Microsecond)
			leave()
		}()
		if out := r.Run(caller, func(error) {}, plan(0, 1), &policy{hedges: 1}, a); out.Err == nil {
			t.Fatalf("%+v", out)
		}
		<-done
		<-ended
	}
}
