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
//	WARN  hedge throttle active       target, method
//	WARN  hedge guard active          target, method
//	WARN  hedge reset limit reached   target, method
//	WARN  backend silent              target, backend
//	WARN  method unhedgeable          target, method, reason
//	WARN  hedging installed twice     target
//	WARN  no method selected          target, reason, methods, more
//	WARN  too many methods            target, limit
//	INFO  hedging paused              by
//	INFO  hedging resumed
//	INFO  options updated             added, removed
//	ERROR update refused              error
//
// A state that holds hedges back is logged when it begins, a budget from the tenth hedge on. The
// state ends after ten seconds without a hedge held back. A backend is logged, by address, after
// ten seconds of silence. "method unhedgeable" is logged once: see [stats.Method].Unhedgeable. "no
// method selected" is logged once per target, if the options select none of its first 100 calls. It
// lists up to ten methods; more counts the rest. "too many methods" is logged once: see
// [WithMaxMethods]. An update that changes no text of an option is not logged, nor a refused update
// with the same error as the last.
//
// A state that recurs is logged a minute after its last record at the earliest. That minimum doubles
// with each record, up to an hour, until an hour passes without the state. A scheduler logs at most
// ten records in ten seconds; suppressed, in the next record, counts the rest. The logger is called
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
	leastHeldBack = 10               // hedges that an exhausted budget holds back before it is logged
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
	last   time.Time     // when the state was last seen, such as by a hedge that was held back
	logged time.Time     // when the beginning was last logged
	pause  time.Duration // after logged, until the next beginning is logged
	begun  bool          // the beginning was logged
	seen   int           // times since the state began
}

// heldBack has the message for the start of each state in which hedges are held back.
var heldBack = map[stats.Reason]string{
	stats.BudgetExhausted: "hedge budget exhausted",
	stats.Throttled:       "hedge throttle active",
	stats.Guarded:         "hedge guard active",
	stats.ResetsSpent:     "hedge reset limit reached",
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
		j.begins(stateKey{e.Target, silent, e.Address}, slog.LevelWarn, "backend silent", "backend", e.Address)
	case stats.HedgeHeldBack:
		if text, ok := heldBack[e.Reason]; ok {
			j.begins(stateKey{e.Target, e.Reason, ""}, slog.LevelWarn, text, "method", e.Method)
		}
	}
}

// begins logs the start of a state of a target.
func (j *journal) begins(key stateKey, level slog.Level, message string, attrs ...any) {
	if j.isNew(key) {
		j.log(level, message, append([]any{"target", key.target}, attrs...)...)
	}
}

// isNew records that a state was seen, and reports whether to log its start. A budget that lacks a
// hedge now and then is healthy: its state begins with leastHeldBack hedges.
func (j *journal) isNew(key stateKey) bool {
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
	_, ends := heldBack[key.reason]
	if ends && calm >= quietFor || key.reason == silent && calm >= againAfter { // only some calls detect a silence
		s.seen, s.begun = 0, false
	}
	s.seen++
	s.last = now
	if s.begun || key.reason == stats.BudgetExhausted && s.seen < leastHeldBack || now.Sub(s.logged) < s.pause {
		return false
	}
	if s.pause = min(2*s.pause, againAtMost); calm > againAtMost || s.pause == 0 {
		s.pause = againAfter
	}
	s.begun, s.logged = true, now
	return true
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
