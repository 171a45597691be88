// Package clock is the clock that the lease service and its clients run on.
package clock

import (
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

// Now is the present instant. The clock is monotonic, and goes on while the machine sleeps, which Go's own monotonic
// clock does not: who wakes up must know that a session or a lease is over.
func Now() core.Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// The clock has been there since Linux 2.6.39. Without it no promise can be kept.
		panic("CLOCK_BOOTTIME: " + err.Error())
	}
	return core.Instant(ts.Nano())
}
