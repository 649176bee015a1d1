package race

import "sync"

func Mutex(r *Race) *sync.Mutex { return &r.mu }
