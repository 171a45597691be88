//go:build !linux

// Package clock is the clock that the lease service and its clients run on.
package clock

import (
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

var processStart = time.Now()

// Now is the present instant. The clock is monotonic; it may stand still while the machine sleeps.
func Now() core.Instant { return core.Instant(time.Since(processStart)) }
