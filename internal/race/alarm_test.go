package race_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/grpchedge/hedge/internal/race"
)

type wake func()

func (w wake) Wake() { w() }

// TestAlarm_WakesEachOnTime sets waiters with delays that change, cancels some, and expects the
// others on time.
func TestAlarm_WakesEachOnTime(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var shared race.Alarm
			var woken, cancelled, refused int
			var mu sync.Mutex
			for range 200 {
				delay := time.Duration(1+random.IntN(3)) * 10 * time.Millisecond
				due := time.Now().Add(delay)
				w := &race.Waiter{Waker: wake(func() {
					mu.Lock()
					defer mu.Unlock()
					woken++
					if !time.Now().Equal(due) {
						t.Errorf("woken %v late", time.Since(due))
					}
				})}
				if !shared.Set(w, due, delay) {
					refused++
				} else if random.IntN(2) == 0 {
					after := time.Duration(random.Int64N(int64(delay)))
					go func() {
						time.Sleep(after)
						if !shared.Cancel(w) {
							t.Error("a waiter was removed before its time")
						}
					}()
					cancelled++
				}
				time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if woken+cancelled+refused != 200 || woken == 0 || cancelled == 0 {
				t.Errorf("seed %d: %d woken, %d cancelled, %d refused", seed, woken, cancelled, refused)
			}
		})
	}
}

// TestAlarm_RefusesAWaiterFarBeforeOthers shows that a search for a place is bounded.
func TestAlarm_RefusesAWaiterFarBeforeOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared race.Alarm
		none := wake(func() {})
		var waiters []*race.Waiter
		for i := range 100 {
			w := &race.Waiter{Waker: none}
			delay := time.Second + time.Duration(i)*time.Millisecond
			if !shared.Set(w, time.Now().Add(delay), delay) {
				t.Fatal("a waiter after all others was refused")
			}
			waiters = append(waiters, w)
		}
		if shared.Set(&race.Waiter{Waker: none}, time.Now().Add(time.Millisecond), time.Millisecond) {
			t.Error("a waiter before a hundred others was accepted")
		}
		if !shared.Set(&race.Waiter{Waker: none}, time.Now().Add(time.Second+95*time.Millisecond), time.Second) {
			t.Error("a waiter before a few others was refused")
		}
		for _, w := range waiters {
			if !shared.Cancel(w) || shared.Cancel(w) {
				t.Error("a waiter was not cancelled exactly once")
			}
		}
		time.Sleep(2 * time.Second)
	})
}

// TestAlarm_StopsWhenEmpty shows that the timer of calls that have ended does not fire, and that the
// next call sets it again.
func TestAlarm_StopsWhenEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared race.Alarm
		woken := 0
		set := func(delay time.Duration) *race.Waiter {
			w := &race.Waiter{Waker: wake(func() { woken++ })}
			if !shared.Set(w, time.Now().Add(delay), delay) {
				t.Fatal("a waiter was refused")
			}
			return w
		}
		first, second := set(time.Second), set(2*time.Second)
		shared.Cancel(first)
		if !race.Armed(&shared) {
			t.Error("the timer stopped, want it armed while a call waits")
		}
		shared.Cancel(second)
		if race.Armed(&shared) {
			t.Error("the timer is armed, want it stopped when no call waits")
		}
		set(3 * time.Second)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if woken != 1 || race.Armed(&shared) {
			t.Errorf("%d calls woken, want the last one", woken)
		}
	})
}
