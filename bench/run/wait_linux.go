package run

import (
	"context"
	"encoding/binary"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// waitExactly waits for d to within some ten microseconds, or until the context ends. The runtime's
// timers are up to a millisecond late on an idle Linux machine, because its poller counts in
// milliseconds; a server would be slower than its distribution by a tenth of a call. A timer file
// (timerfd) wakes the poller in time.
func waitExactly(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	alarm, _ := alarms.Get().(*alarm)
	if alarm == nil {
		var err error
		if alarm, err = newAlarm(); err != nil { // out of files, say
			return waitRoughly(ctx, d)
		}
	}
	err := alarm.wait(ctx, d)
	alarms.Put(alarm)
	return err
}

var alarms sync.Pool // of *alarm; the runtime closes the files of collected ones

type alarm struct {
	file *os.File
	fd   int
	buf  [8]byte
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &alarm{file: os.NewFile(uintptr(fd), "alarm"), fd: fd}, nil
}

func (a *alarm) wait(ctx context.Context, d time.Duration) error {
	if err := a.file.SetReadDeadline(time.Time{}); err != nil {
		return waitRoughly(ctx, d)
	}
	if err := unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())},
		nil); err != nil {
		return waitRoughly(ctx, d)
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		_ = a.file.SetReadDeadline(time.Unix(1, 0))
	})
	_, err := a.file.Read(a.buf[:])
	if !stop() {
		<-woken // or the deadline would meet the next one who waits
		return ctx.Err()
	}
	if err != nil || binary.NativeEndian.Uint64(a.buf[:]) == 0 {
		return waitRoughly(ctx, d)
	}
	return nil
}
