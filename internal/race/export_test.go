package race

import "sync"

func Mutex(r *Race) *sync.Mutex { return &r.mu }

func Armed(a *Alarm) bool { return !a.firesAt.IsZero() }
