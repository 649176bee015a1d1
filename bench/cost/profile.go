package cost

import (
	"context"
	"os"
	"runtime/pprof"
)

// profile writes a profile of the processor time to the file at path, until stop is called. Without
// a path it writes none.
func profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// labelled runs do, and all goroutines that it starts, with the label of a contestant in the
// profile.
func labelled(label string, do func() error) (err error) {
	pprof.Do(context.Background(), pprof.Labels("client", label), func(context.Context) { err = do() })
	return err
}
