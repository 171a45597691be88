package release

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// describe names the ring that is at work.
func (p *pass) describe() {
	switch p.status.Phase {
	case v1alpha1.ReleaseRolling:
		p.status.Ring = ""
		for i := range p.status.Rings {
			if p.status.Rings[i].Phase != v1alpha1.RingProved {
				p.status.Ring = p.status.Rings[i].Name
				return
			}
		}
	case v1alpha1.ReleaseComplete:
		p.status.Ring = ""
	case v1alpha1.ReleaseRolledBack: // judge named the ring that failed
	}
}

// verdict says how the guard stands. late names an application that is not at its target revision yet.
func (p *pass) verdict(late string) (verdict Verdict, reason, message string) {
	switch {
	case len(p.problems) > 0:
		return Blocked, v1alpha1.ReasonRingsInvalid, strings.Join(p.problems, "; ")
	case p.status.Phase == v1alpha1.ReleaseRolledBack:
		bad := p.status.BadRevision
		return Blocked, v1alpha1.ReasonRolledBack, fmt.Sprintf(
			"%s was rolled back in ring %s (%s: %s); it is not tried again before spec.revision or spec.attempt changes",
			bad.Revision, bad.Ring, bad.Reason, bad.Message)
	case p.status.Phase == v1alpha1.ReleaseRolling && p.closing != nil:
		return Waiting, p.closing.reason, fmt.Sprintf("ring %s has to wait: %s", p.status.Ring, p.closing.text)
	case p.status.Phase == v1alpha1.ReleaseRolling:
		return Waiting, v1alpha1.ReasonProgressing, p.rolling()
	case late != "":
		return Waiting, v1alpha1.ReasonProgressing, "the target revision of Application " + late + " is being set"
	}
	return Done, v1alpha1.ReasonReady, fmt.Sprintf("%s was proved in %d rings, and is the target revision of %d applications",
		p.status.Release.Revision, len(p.status.Rings), len(p.status.Applications))
}

func (p *pass) rolling() string {
	for i := range p.status.Rings {
		ring := &p.status.Rings[i]
		if ring.Name != p.status.Ring {
			continue
		}
		text := fmt.Sprintf("ring %s (%d of %d): %d of %d applications are in effect at %s",
			ring.Name, i+1, len(p.status.Rings), ring.InEffect, ring.Applications, p.status.Release.Revision)
		if ring.Phase == v1alpha1.RingSoaking {
			return fmt.Sprintf("%s, and must stay so for %d s", text, *p.spec.Rings[i].SoakSeconds)
		}
		for _, app := range p.membersOf(ring.Name) {
			if app.State != inEffect {
				return fmt.Sprintf("%s; %s: %s", text, app.Name, app.State)
			}
		}
		return text
	}
	return "the next ring is about to be given the revision"
}
