package release

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Checks returns the checks that are to be made now by a status: those of which a ring was in effect with a revision that
// is not yet in all rings.
func Checks(spec *v1alpha1.ReleaseGuardSpec, status *v1alpha1.ReleaseGuardStatus) []v1alpha1.ReleaseCheck {
	if status.Phase != v1alpha1.ReleaseRolling || spec.Paused {
		return nil
	}
	var out []v1alpha1.ReleaseCheck
	for _, check := range withDefaults(spec).Checks {
		if slices.ContainsFunc(status.Rings, func(ring v1alpha1.ReleaseRingStatus) bool { return settled(&check, &ring) }) {
			out = append(out, check)
		}
	}
	return out
}

// settled tells whether a check is made for a ring.
func settled(check *v1alpha1.ReleaseCheck, ring *v1alpha1.ReleaseRingStatus) bool {
	return ring.HasRevision() && ring.SettledTime != nil && concerns(check, ring.Name)
}

func concerns(check *v1alpha1.ReleaseCheck, ring string) bool {
	return len(check.Rings) == 0 || slices.Contains(check.Rings, ring)
}

// check counts what the queries answered.
func (p *pass) check() {
	for _, check := range Checks(p.spec, p.status) {
		sample := p.observed.Samples[check.Name]
		interval := seconds(check.IntervalSeconds)
		p.due(later(sample.Time.Add(interval), p.now))
		if sample.Time.IsZero() || p.now.Sub(sample.Time) > outdated(interval) || !p.sinceSettled(&check, sample.Time) {
			continue
		}
		entry := p.checkEntry(check.Name)
		result, message := hold(&check, sample)
		if result != entry.Result {
			entry.Result, entry.Message = result, message
		}
		switch result {
		case v1alpha1.CheckPassed:
			entry.Failures, entry.LastFailureTime = 0, nil
		case v1alpha1.CheckCrossed:
			if entry.LastFailureTime == nil || !sample.Time.Before(entry.LastFailureTime.Add(interval)) {
				entry.Failures++
				entry.LastFailureTime, entry.Message = p.stamp(), message
			}
		case v1alpha1.CheckUnknown:
		}
	}
}

// outdated is the age at which an answer says nothing any more.
func outdated(interval time.Duration) time.Duration { return 3*interval + 10*time.Second }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sinceSettled tells whether a query was asked after the first of its rings was in effect.
func (p *pass) sinceSettled(check *v1alpha1.ReleaseCheck, at time.Time) bool {
	return slices.ContainsFunc(p.status.Rings, func(ring v1alpha1.ReleaseRingStatus) bool {
		return settled(check, &ring) && !at.Before(ring.SettledTime.Time)
	})
}

func (p *pass) checkEntry(name string) *v1alpha1.ReleaseCheckStatus {
	at := slices.IndexFunc(p.status.Checks, func(c v1alpha1.ReleaseCheckStatus) bool { return c.Name == name })
	if at < 0 {
		at = len(p.status.Checks)
		p.status.Checks = append(p.status.Checks, v1alpha1.ReleaseCheckStatus{Name: name})
	}
	return &p.status.Checks[at]
}

// hold holds an answer to the bounds.
func hold(check *v1alpha1.ReleaseCheck, sample Sample) (v1alpha1.CheckResult, string) {
	switch {
	case sample.Err != "":
		return v1alpha1.CheckUnknown, "the query failed: " + sample.Err
	case len(sample.Values) == 0:
		return v1alpha1.CheckUnknown, "the query gave no data"
	case slices.ContainsFunc(sample.Values, math.IsNaN):
		return v1alpha1.CheckUnknown, "the query gave a value that is no number"
	}
	least, most := slices.Min(sample.Values), slices.Max(sample.Values)
	switch {
	case check.Min != nil && least < check.Min.AsApproximateFloat64():
		return v1alpha1.CheckCrossed, fmt.Sprintf("%s is below the minimum %s", number(least), bound(check.Min))
	case check.Max != nil && most > check.Max.AsApproximateFloat64():
		return v1alpha1.CheckCrossed, fmt.Sprintf("%s is above the maximum %s", number(most), bound(check.Max))
	case least == most:
		return v1alpha1.CheckPassed, number(least) + " is within the bounds"
	}
	return v1alpha1.CheckPassed, fmt.Sprintf("%s to %s are within the bounds", number(least), number(most))
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', 4, 64) }

func bound(quantity *resource.Quantity) string { return number(quantity.AsApproximateFloat64()) }

func (p *pass) checkFailure() *failure {
	for _, check := range Checks(p.spec, p.status) {
		at := slices.IndexFunc(p.status.Checks, func(c v1alpha1.ReleaseCheckStatus) bool { return c.Name == check.Name })
		if at < 0 || p.status.Checks[at].Failures < check.FailureThreshold {
			continue
		}
		entry := p.status.Checks[at]
		out := &failure{
			reason:  v1alpha1.FailureCheck,
			message: fmt.Sprintf("check %s: %s, %d times in a row", check.Name, entry.Message, entry.Failures),
		}
		for i := range p.status.Rings {
			if settled(&check, &p.status.Rings[i]) {
				out.rings = append(out.rings, p.status.Rings[i].Name)
			}
		}
		return out
	}
	return nil
}

// closed says which check keeps the next ring from going after a ring. Nil: none does.
func (p *pass) closed(ring *v1alpha1.ReleaseRingStatus) *gate {
	for _, check := range p.spec.Checks {
		if !concerns(&check, ring.Name) {
			continue
		}
		sample := p.observed.Samples[check.Name]
		if sample.Time.IsZero() || sample.Time.Before(ring.GoodSince.Time) || p.now.Sub(sample.Time) > outdated(seconds(check.IntervalSeconds)) {
			return &gate{v1alpha1.ReasonProgressing, "check " + check.Name + " was not made yet"}
		}
		switch result, message := hold(&check, sample); result {
		case v1alpha1.CheckUnknown:
			return &gate{v1alpha1.ReasonCheckUnknown, fmt.Sprintf("check %s: %s", check.Name, message)}
		case v1alpha1.CheckCrossed: // the number is in the status, and differs each time
			return &gate{v1alpha1.ReasonProgressing, "check " + check.Name + " is out of bounds"}
		case v1alpha1.CheckPassed:
		}
	}
	return nil
}

// passed tells of the checks that a ring passed, with their numbers.
func (p *pass) passed(ring string) string {
	var text strings.Builder
	for _, check := range p.spec.Checks {
		if concerns(&check, ring) {
			_, message := hold(&check, p.observed.Samples[check.Name])
			fmt.Fprintf(&text, "; check %s: %s", check.Name, message)
		}
	}
	return text.String()
}
