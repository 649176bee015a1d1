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

// WithLogger logs changes of state, and never a line for each call:
//
//	WARN  hedging budget ran dry        target, method
//	INFO  hedging budget pays again     target, held_back
//	WARN  hedging throttled             target, method
//	INFO  hedging no longer throttled   target, held_back
//	WARN  guard holds hedges back       target, method
//	INFO  guard lets hedges pass again  target, held_back
//	WARN  no resets left for hedges     target, method
//	INFO  resets left for hedges again  target, held_back
//	WARN  backend is silent             target, backend
//	INFO  no backend is silent          target
//	WARN  most calls cannot be hedged   target, method, reason
//	WARN  none of the first 100 calls was selected for hedging: …   target, methods, more
//
// A budget, guard or reset state ends after ten seconds in which it held back no hedge; held_back counts
// the hedges that it held back. A backend is reported, by address, after ten seconds of silence. The reason
// for which most calls of a method cannot be hedged is logged once: see [stats.Method].Unhedgeable. The
// last record is logged once per target and lists up to ten methods; more counts the rest.
//
// The same record is logged at most once a minute per target. A scheduler logs at most ten records in ten
// seconds; suppressed in the next record is the number left out. The logger is called concurrently, and
// under no lock. l must not be nil. The scheduler keeps its loggers: see [Scheduler.Update].
func WithLogger(l *slog.Logger) Option {
	return option("WithLogger", refuse(l == nil, "WithLogger(nil): there must be a logger"), func(c *settings.Config) {
		j := &journal{logger: l, states: map[stateKey]*state{}}
		c.Traces, c.Logged = append(c.Traces, j.note), true
	})
}

const (
	recordsAtOnce = 10 // per recordsWithin and scheduler
	recordsWithin = 10 * time.Second
	quietFor      = 10 * time.Second // without a hedge held back, after which a state ends
	againAfter    = time.Minute      // before the same record of a target is logged again
	maxRemembered = 1024             // states
)

// journal decides which changes are logged.
type journal struct {
	logger *slog.Logger

	mu      sync.Mutex
	states  map[stateKey]*state
	began   time.Time // of the current recordsWithin
	records int       // since began, with the records that were left out
}

// silent is the key of a silent backend, which holds back no hedge but begins and ends like a state that does.
const silent stats.Reason = "silent"

// unhedgeable is the state of a method, and does not end.
const unhedgeable stats.Reason = "unhedgeable"

type stateKey struct {
	target string
	reason stats.Reason
}

type state struct {
	last     time.Time // when a hedge was last held back
	logged   time.Time
	told     bool // the beginning was logged
	heldBack int
}

// heldBack are the reasons that are logged, with the messages of their beginning and end.
var heldBack = map[stats.Reason]struct{ begins, ends string }{
	stats.BudgetExhausted: {"hedging budget ran dry", "hedging budget pays again"},
	stats.Throttled:       {"hedging throttled", "hedging no longer throttled"},
	stats.Guarded:         {"guard holds hedges back", "guard lets hedges pass again"},
	stats.ResetsSpent:     {"no resets left for hedges", "resets left for hedges again"},
	silent:                {"backend is silent", "no backend is silent"},
}

// note records an event of settings.Traces.
func (j *journal) note(event any) {
	switch e := event.(type) {
	case settings.NothingSelected:
		if !j.heldBack(stateKey{e.Target, stats.NotSelected}, time.Now()) {
			return // the target was forgotten, and came back
		}
		attrs := []slog.Attr{slog.String("target", e.Target), slog.Any("methods", e.Methods)}
		if e.More > 0 {
			attrs = append(attrs, slog.Int("more", e.More))
		}
		j.log(slog.LevelWarn, e.Why, attrs...)
	case settings.Unhedgeable:
		if j.heldBack(stateKey{e.Target + e.Method, unhedgeable}, time.Now()) {
			j.log(slog.LevelWarn, "most calls cannot be hedged", slog.String("target", e.Target), slog.String("method", e.Method), slog.String("reason", string(e.Reason)))
		}
	case settings.SilentBackend:
		if j.heldBack(stateKey{e.Target, silent}, time.Now()) {
			j.log(slog.LevelWarn, heldBack[silent].begins, slog.String("target", e.Target), slog.String("backend", e.Address))
		}
	case stats.HedgeHeldBack:
		if text, ok := heldBack[e.Reason]; ok && j.heldBack(stateKey{e.Target, e.Reason}, time.Now()) {
			j.log(slog.LevelWarn, text.begins, slog.String("target", e.Target), slog.String("method", e.Method))
		}
	case stats.HedgeSent:
		for reason, text := range heldBack {
			if n, ended := j.sent(stateKey{e.Target, reason}, time.Now()); ended {
				attrs := []slog.Attr{slog.String("target", e.Target), slog.Int("held_back", n)}
				if reason == silent {
					attrs = attrs[:1]
				}
				j.log(slog.LevelInfo, text.ends, attrs...)
			}
		}
	}
}

// heldBack records that a hedge was held back, and reports whether to log that. It never is beyond
// maxRemembered states.
func (j *journal) heldBack(key stateKey, now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.states[key]
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
	s.heldBack++
	s.last = now
	if s.told || now.Sub(s.logged) < againAfter {
		return false
	}
	s.told, s.logged = true, now
	return true
}

// sent records that a hedge was sent. If that ends the state, it returns the number of hedges held back,
// and whether to log the end.
func (j *journal) sent(key stateKey, now time.Time) (n int, over bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.states[key]
	quiet := quietFor
	switch key.reason {
	case stats.Throttled:
		quiet = 0
	case silent: // only some calls notice it
		quiet = againAfter
	}
	if s == nil || s.heldBack == 0 || now.Sub(s.last) < quiet {
		return 0, false
	}
	n, over = s.heldBack, s.told
	s.heldBack, s.told = 0, false
	return n, over
}

// log logs a record, unless recordsAtOnce were logged.
func (j *journal) log(level slog.Level, message string, attrs ...slog.Attr) {
	j.mu.Lock()
	if now := time.Now(); now.Sub(j.began) >= recordsWithin {
		if suppressed := j.records - recordsAtOnce; suppressed > 0 {
			attrs = append(attrs, slog.Int("suppressed", suppressed))
		}
		j.began, j.records = now, 0
	}
	j.records++
	tooMany := j.records > recordsAtOnce
	j.mu.Unlock()
	if !tooMany {
		j.logger.LogAttrs(context.Background(), level, message, attrs...)
	}
}
