package engine

import (
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// Monotonic is the clock the service runs on. It goes on while the machine sleeps, which Go's own
// monotonic clock does not: a replica that wakes up must know that its session is over.
func Monotonic() core.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// The clock has been there since Linux 2.6.39. Without it no promise can be kept.
		panic("CLOCK_BOOTTIME: " + err.Error())
	}
	return core.Instant(ts.Nano())
}
