package leaseservice

import (
	"fmt"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// limitArgs are the flags of the limits that are set. There is none for those that are not: pods of a spec without limits
// stay as they are.
func limitArgs(limits *v1alpha1.LeaseServiceLimits) []string {
	if limits == nil {
		return nil
	}
	var out []string
	for _, limit := range []struct {
		flag  string
		value int32
		unit  string
	}{
		{"max-leases", limits.Leases, ""},
		{"max-waiters", limits.Waiters, ""},
		{"max-waiters-per-name", limits.WaitersPerName, ""},
		{"max-acquires-per-second", limits.AcquiresPerSecond, ""},
		{"min-ttl", limits.MinTTLSeconds, "s"},
		{"max-ttl", limits.MaxTTLSeconds, "s"},
		{"max-value-bytes", limits.ValueBytes, ""},
	} {
		if limit.value != 0 {
			out = append(out, fmt.Sprintf("--%s=%d%s", limit.flag, limit.value, limit.unit))
		}
	}
	return out
}
