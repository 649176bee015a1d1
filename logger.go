package hedge

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/grpchedge/hedge/internal/settings"
	"github.com/grpchedge/hedge/stats"
)

// WithLogger logs changes of state, never a line per call:
//
//	WARN  hedge budget exhausted      target, method
//	INFO  hedge budget recovered      target, held_back
//	WARN  hedge throttle active       target, method
//	INFO  hedge throttle released     target, held_back
//	WARN  hedge guard active          target, method
//	INFO  hedge guard released        target, held_back
//	WARN  hedge reset limit reached   target, method
//	INFO  hedge reset limit released  target, held_back
//	WARN  backend silent              target, backend
//	INFO  backends answering          target
//	WARN  method unhedgeable          target, method, reason
//	WARN  hedging installed twice     target
//	WARN  no method selected          target, reason, methods, more
//	WARN  too many methods            target, limit
//	INFO  hedging paused              by
//	INFO  hedging resumed
//	INFO  options updated             added, removed
//	ERROR update refused              error
//
// A budget, guard or reset state ends after ten seconds in which it held back no hedge; held_back
// counts the hedges that it held back. A budget is reported from the tenth on. A backend is reported,
// by address, after ten seconds of silence. For "method unhedgeable", logged once, see
// [stats.Method].Unhedgeable. "no method selected" is logged once per target, if the options select
// none of its first 100 calls. It lists up to ten methods; more counts the rest. "too many methods" is
// logged once: see [WithMaxMethods]. An update that
// changes no text of an option is not reported, nor an error of [Scheduler.Update] that repeats the last.
//
// A state of a target that begins again is logged after a minute at the earliest, and then after twice
// as long each time, up to an hour; an hour without the state ends that. A scheduler logs at most ten
// records in ten seconds; suppressed, in the next record, counts the rest. The logger is called
// concurrently, with no locks held. l must not be nil. [Scheduler.Update] keeps the loggers.
func WithLogger(l *slog.Logger) Option {
	err := refuse(l == nil, "WithLogger(nil): must not be nil")
	return option("WithLogger", forScheduler, err, func(c *settings.Config) {
		j := &journal{logger: l, states: map[stateKey]*state{}}
		c.Traces, c.Logged = append(c.Traces, j.note), true
	})
}

const (
	recordsAtOnce = 10 // per recordsWithin and scheduler
	recordsWithin = 10 * time.Second
	quietFor      = 10 * time.Second // without a hedge held back, ends a state
	againAfter    = time.Minute      // between the first two equal records of a target
	againAtMost   = time.Hour        // between two later ones
	maxRemembered = 1024             // states
)

// journal decides which changes are logged.
type journal struct {
	logger *slog.Logger

	mu      sync.Mutex
	states  map[stateKey]*state
	began   time.Time // of the current recordsWithin
	records int       // since began, logged and suppressed
}

type stateKey struct {
	target string
	reason stats.Reason // why hedges are held back, silent, or the message of a settings.Notice
	of     string       // the silent backend, or the unhedgeable method; "" for all of the target
}

const silent stats.Reason = "silent"

type state struct {
	last     time.Time     // when a hedge was last held back
	logged   time.Time     // when the beginning was last logged
	pause    time.Duration // after logged, until the next beginning is logged
	begun    bool          // the beginning was logged
	heldBack int
}

// heldBack has the messages for the start and the end of each state, and the time without a hedge
// held back that ends it. A budget that lacks a hedge now and then is healthy: only from the tenth on is
// it logged.
var heldBack = map[stats.Reason]struct {
	begins, ends string
	quiet        time.Duration
	least        int // hedges held back
}{
	stats.BudgetExhausted: {"hedge budget exhausted", "hedge budget recovered", quietFor, 10},
	stats.Throttled:       {"hedge throttle active", "hedge throttle released", 0, 1},
	stats.Guarded:         {"hedge guard active", "hedge guard released", quietFor, 1},
	stats.ResetsSpent:     {"hedge reset limit reached", "hedge reset limit released", quietFor, 1},
	silent:                {"backend silent", "backends answering", againAfter, 1}, // only some calls detect it
}

// note handles an event of settings.Traces.
func (j *journal) note(event any) {
	switch e := event.(type) {
	case settings.Notice:
		if e.Target == "" {
			j.log(e.Level, e.Message, e.Attrs...)
			return
		}
		j.begins(stateKey{e.Target, stats.Reason(e.Message), e.Method}, e.Level, e.Message, e.Attrs...)
	case settings.SilenceNotice:
		j.heldBack(stateKey{e.Target, silent, ""}) // ends for all backends at once
		j.begins(stateKey{e.Target, silent, e.Address}, slog.LevelWarn, heldBack[silent].begins, "backend", e.Address)
	case stats.HedgeHeldBack:
		if text, ok := heldBack[e.Reason]; ok {
			j.begins(stateKey{e.Target, e.Reason, ""}, slog.LevelWarn, text.begins, "method", e.Method)
		}
	case stats.HedgeSent:
		for reason, text := range heldBack {
			if n, ended := j.sent(stateKey{e.Target, reason, ""}); ended {
				attrs := []any{"target", e.Target, "held_back", n}
				if reason == silent {
					attrs = attrs[:2]
				}
				j.log(slog.LevelInfo, text.ends, attrs...)
			}
		}
	}
}

// begins logs the start of a state of a target.
func (j *journal) begins(key stateKey, level slog.Level, message string, attrs ...any) {
	if j.heldBack(key) {
		j.log(level, message, append([]any{"target", key.target}, attrs...)...)
	}
}

// heldBack counts a hedge held back, and reports whether to log the start of the state.
func (j *journal) heldBack(key stateKey) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, now := j.states[key], time.Now()
	if s == nil {
		if len(j.states) >= maxRemembered {
			maps.DeleteFunc(j.states, func(_ stateKey, s *state) bool { return now.Sub(s.last) > againAfter })
		}
		if len(j.states) >= maxRemembered {
			return false
		}
		s = &state{}
		j.states[key] = s
	}
	calm := now.Sub(s.last)
	s.heldBack++
	s.last = now
	if s.begun || s.heldBack < heldBack[key.reason].least || now.Sub(s.logged) < s.pause {
		return false
	}
	if s.pause = min(2*s.pause, againAtMost); calm > againAtMost || s.pause == 0 {
		s.pause = againAfter
	}
	s.begun, s.logged = true, now
	return true
}

// sent handles a sent hedge, and reports whether to log the end of the state, with the number of
// hedges that it held back.
func (j *journal) sent(key stateKey) (n int, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.states[key]
	if s == nil || s.heldBack == 0 || time.Since(s.last) < heldBack[key.reason].quiet {
		return 0, false
	}
	n, over = s.heldBack, s.begun
	s.heldBack, s.begun = 0, false
	if key.reason == silent {
		maps.DeleteFunc(j.states, func(k stateKey, _ *state) bool {
			return k.target == key.target && k.reason == silent && k.of != ""
		})
	}
	return n, over
}

// log logs a record unless recordsAtOnce were logged within recordsWithin.
func (j *journal) log(level slog.Level, message string, attrs ...any) {
	j.mu.Lock()
	if now := time.Now(); now.Sub(j.began) >= recordsWithin {
		if suppressed := j.records - recordsAtOnce; suppressed > 0 {
			attrs = append(attrs, "suppressed", suppressed)
		}
		j.began, j.records = now, 0
	}
	j.records++
	tooMany := j.records > recordsAtOnce
	j.mu.Unlock()
	if !tooMany {
		j.logger.Log(context.Background(), level, message, attrs...)
	}
}
