package busy

import (
	"syscall"
	"time"
	"unsafe"
)

// hold keeps the goroutine's processor (GOMAXPROCS) for d, as computing would, but leaves the
// machine's processor free, so that other processes do not change its time. The runtime is unaware
// of a raw system call, so it gives the processor to no other goroutine.
func hold(d time.Duration) {
	for until := time.Now().Add(d); d > 0; d = time.Until(until) {
		ts := syscall.NsecToTimespec(int64(d))
		_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // or a signal ends it early
	}
}
