package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
)

// The limits of single requests can be made narrower, and not wider.
func TestTheLimitsOfRequestsAreChecked(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*service.Options)
		names  string
	}{
		"the widest":          {func(o *service.Options) { o.MinTTL, o.MaxTTL, o.MaxValueBytes = time.Second, 24*time.Hour, 64<<10 }, ""},
		"narrow":              {func(o *service.Options) { o.MinTTL, o.MaxTTL, o.MaxValueBytes = time.Minute, time.Minute, 1 }, ""},
		"too short":           {func(o *service.Options) { o.MinTTL = time.Millisecond }, "--min-ttl"},
		"no whole seconds":    {func(o *service.Options) { o.MinTTL = 1500 * time.Millisecond }, "--min-ttl"},
		"too long":            {func(o *service.Options) { o.MaxTTL = 25 * time.Hour }, "--max-ttl"},
		"upside down":         {func(o *service.Options) { o.MinTTL, o.MaxTTL = 2*time.Minute, time.Minute }, "--max-ttl"},
		"without the default": {func(o *service.Options) { o.MaxTTL = 30 * time.Second }, "--lease-ttl"},
		"too large a value":   {func(o *service.Options) { o.MaxValueBytes = 64<<10 + 1 }, "--max-value-bytes"},
		"less than nothing":   {func(o *service.Options) { o.MaxValueBytes = -1 }, "--max-value-bytes"},
	} {
		opts := leasetest.Options("a")
		opts.DataDir = t.TempDir()
		c.change(&opts)
		err := opts.Validate()
		if c.names == "" {
			require.NoError(t, err, what)
			continue
		}
		assert.ErrorContains(t, err, c.names, what)
	}
}
