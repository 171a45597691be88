package components

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// TenantLimits is what the LeaseServices of a namespace may ask for. The zero value keeps them to the operator's image
// and to etcd keys of their own namespace. No limits allow a priority class or tolerations: pods of a higher priority
// evict those of others, and tolerations reach the nodes that are kept for others.
type TenantLimits struct {
	// Replicas of each. Nil: as many as the API allows.
	Replicas *Range `json:"replicas,omitempty"`
	// LeaseTTLSeconds of each. Nil: whatever the API allows.
	LeaseTTLSeconds *Range `json:"leaseTTLSeconds,omitempty"`
	// Leases that each may hold at once, which is its limits.leases: with a Max, it has to be given. Nil: whatever the API allows.
	Leases *Range `json:"leases,omitempty"`
	// AcquiresPerSecond of each, which is its limits.acquiresPerSecond, likewise.
	AcquiresPerSecond *Range `json:"acquiresPerSecond,omitempty"`
	// Images that may be named, each whole, or with "*" at its end for whatever comes there. None: only the image that
	// the operator was configured with, by naming none.
	Images []string `json:"images,omitempty"`
	// EtcdEndpoints that may be named. None: any.
	EtcdEndpoints []string `json:"etcdEndpoints,omitempty"`
}

// Range is a range of whole numbers.
type Range struct {
	// Min is the least. Zero: no bound.
	Min int32 `json:"min,omitempty"`
	// Max is the most. Zero: no bound.
	Max int32 `json:"max,omitempty"`
}

// leaveOut says what is allowed of a field that is the platform's own.
const leaveOut = "leave it out"

// LimitError says which field of a LeaseService's spec is outside of the limits.
type LimitError struct {
	// Field of the spec, such as "replicas".
	Field string
	// Message says what is wrong with it and what is allowed.
	Message string
}

// Error is the field and the message.
func (e LimitError) Error() string { return e.Field + ": " + e.Message }

// Check returns what is outside of the limits in the spec of a LeaseService in the namespace. Zero replicas and TTL are
// the API's defaults. It says the same as the admission policy that a [TenantSpace] makes of the limits.
func (l TenantLimits) Check(namespace string, spec *v1alpha1.LeaseServiceSpec) []LimitError {
	var errs []LimitError
	add := func(field, message string) {
		if message != "" {
			errs = append(errs, LimitError{Field: field, Message: message})
		}
	}
	add("replicas", l.Replicas.check(orNumber(spec.Replicas, v1alpha1.DefaultReplicas)))
	add("leaseTTLSeconds", l.LeaseTTLSeconds.check(orNumber(spec.LeaseTTLSeconds, v1alpha1.DefaultLeaseTTLSeconds)))
	limits := spec.Limits
	if limits == nil {
		limits = &v1alpha1.LeaseServiceLimits{}
	}
	add("limits.leases", l.Leases.checkLimit(limits.Leases))
	add("limits.acquiresPerSecond", l.AcquiresPerSecond.checkLimit(limits.AcquiresPerSecond))
	if spec.Image != "" && !slices.ContainsFunc(l.Images, func(allowed string) bool { return imageMatches(allowed, spec.Image) }) {
		add("image", fmt.Sprintf("%q is not allowed; %s", spec.Image, l.allowedImages()))
	}
	for i, endpoint := range spec.EtcdEndpoints {
		if len(l.EtcdEndpoints) > 0 && !slices.Contains(l.EtcdEndpoints, endpoint) {
			add(fmt.Sprintf("etcdEndpoints[%d]", i),
				fmt.Sprintf("%q is not allowed; allowed: %s", endpoint, strings.Join(l.EtcdEndpoints, ", ")))
		}
	}
	if spec.Etcd != nil && spec.Etcd.Prefix != "" && !strings.HasPrefix(spec.Etcd.Prefix, ownPrefix(namespace)) {
		add("etcd.prefix", fmt.Sprintf("%q is not allowed; it must begin with %s", spec.Etcd.Prefix, ownPrefix(namespace)))
	}
	if scheduling := spec.Scheduling; scheduling != nil {
		if scheduling.PriorityClassName != "" {
			add("scheduling.priorityClassName", fmt.Sprintf("%q is not allowed; %s", scheduling.PriorityClassName, leaveOut))
		}
		if len(scheduling.Tolerations) > 0 {
			add("scheduling.tolerations", "are not allowed; "+leaveOut)
		}
	}
	return errs
}

func (r *Range) check(value int32) string {
	switch {
	case r == nil:
		return ""
	case value < r.Min:
		return fmt.Sprintf("%d is below %d, the least that the platform allows", value, r.Min)
	case r.Max > 0 && value > r.Max:
		return fmt.Sprintf("%d is above %d, the most that the platform allows", value, r.Max)
	default:
		return ""
	}
}

// checkLimit checks a value that is a limit itself: zero is none, and so above any Max.
func (r *Range) checkLimit(value int32) string {
	switch {
	case value != 0:
		return r.check(value)
	case r != nil && r.Max > 0:
		return fmt.Sprintf("is not given, which is no limit; at most %d is allowed", r.Max)
	default:
		return ""
	}
}

func (l TenantLimits) allowedImages() string {
	if len(l.Images) == 0 {
		return "leave it out, for the platform's own"
	}
	return "allowed: " + strings.Join(l.Images, ", ")
}

// ownPrefix begins the etcd keys of a namespace's LeaseServices, unless their spec says otherwise.
func ownPrefix(namespace string) string { return "/holdfast/" + namespace + "/" }

func imageMatches(allowed, image string) bool {
	if start, open := strings.CutSuffix(allowed, "*"); open {
		return strings.HasPrefix(image, start)
	}
	return image == allowed
}

func orNumber(value, fallback int32) int32 {
	if value == 0 {
		return fallback
	}
	return value
}
