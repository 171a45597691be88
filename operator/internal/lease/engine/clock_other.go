//go:build !linux

package engine

import (
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

var processStart = time.Now()

// Monotonic is the clock the service runs on.
func Monotonic() core.Instant { return core.Instant(time.Since(processStart)) }
