package release

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// Members returns the ring of each application that a guard has, by the application's name, and what is wrong with the
// rings. The first ring that names or selects an application has it.
func Members(spec *v1alpha1.ReleaseGuardSpec, apps []Application) (members map[string]string, problems []string) {
	members = map[string]string{}
	there := map[string]*Application{}
	for i := range apps {
		if !apps[i].Deleting {
			there[apps[i].Name] = &apps[i]
		}
	}
	for i := range spec.Rings {
		ring := &spec.Rings[i]
		selected, problem := selectedBy(ring, there)
		problems = append(problems, problem...)
		count := 0
		for _, name := range selected {
			if _, earlier := members[name]; !earlier {
				members[name] = ring.Name
				count++
			}
		}
		if count == 0 && len(problem) == 0 {
			problems = append(problems, "ring "+ring.Name+" has no application of its own")
		}
	}
	return members, problems
}

func selectedBy(ring *v1alpha1.ReleaseRing, there map[string]*Application) (selected, problems []string) {
	for _, name := range ring.Applications {
		if there[name] == nil {
			problems = append(problems, fmt.Sprintf("ring %s: there is no Application %s", ring.Name, name))
			continue
		}
		selected = append(selected, name)
	}
	if ring.Selector == nil {
		return selected, problems
	}
	selector, err := metav1.LabelSelectorAsSelector(ring.Selector)
	if err != nil {
		return selected, append(problems, fmt.Sprintf("ring %s: selector: %v", ring.Name, err))
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if selector.Matches(labels.Set(there[name].Labels)) {
			selected = append(selected, name)
		}
	}
	return selected, problems
}

// enroll brings rings and applications of the status in line with the spec and with what is there. An application that is
// new is taken as it is found.
func (p *pass) enroll() {
	members, problems := Members(p.spec, p.observed.Applications)
	p.problems = problems
	for i := range p.observed.Applications {
		app := &p.observed.Applications[i]
		ring, ours := members[app.Name]
		if !ours {
			continue
		}
		if owner := p.observed.Taken[app.Name]; owner != "" {
			p.problems = append(p.problems, fmt.Sprintf("ring %s: Application %s is in a ring of ReleaseGuard %s", ring, app.Name, owner))
			delete(members, app.Name)
			continue
		}
		if app.Unsupported != "" {
			p.problems = append(p.problems, fmt.Sprintf("ring %s: Application %s %s", ring, app.Name, app.Unsupported))
			delete(members, app.Name)
			continue
		}
		p.live[app.Name] = app
	}
	slices.Sort(p.problems)
	p.enrollApplications(members)
	p.enrollRings()
	p.rememberAway()
}

func (p *pass) enrollApplications(members map[string]string) {
	known := map[string]v1alpha1.ReleaseApplicationStatus{}
	for _, app := range p.status.Applications {
		known[app.Name] = app
	}
	list := make([]v1alpha1.ReleaseApplicationStatus, 0, len(members))
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if p.live[name] == nil {
			continue
		}
		entry, old := known[name]
		if !old {
			entry = found(p.live[name])
		}
		entry.Ring = members[name]
		list = append(list, entry)
	}
	p.status.Applications = nilWhenEmpty(list)
}

// rememberAway sets the entries of applications aside that were members and are none now: one may be deleted and made again,
// or lose a label, in the middle of a release, and what a rollback returns it to is known nowhere else.
func (p *pass) rememberAway() {
	for _, app := range p.prior.Applications {
		if p.live[app.Name] != nil || p.ringOf(app.Ring) == nil {
			continue
		}
		p.away = append(p.away, v1alpha1.ReleaseApplicationStatus{
			Name: app.Name, Ring: app.Ring, TargetRevision: app.TargetRevision, LastGoodRevision: app.LastGoodRevision, State: notThere,
		})
	}
}

// keepAway puts what was set aside into the status. After a release that is complete there is nothing to return to, and who
// comes gets what its ring has.
func (p *pass) keepAway() {
	if p.status.Phase == v1alpha1.ReleaseComplete {
		return
	}
	p.status.Applications = append(p.status.Applications, p.away...)
	slices.SortFunc(p.status.Applications, func(a, b v1alpha1.ReleaseApplicationStatus) int { return strings.Compare(a.Name, b.Name) })
}

func (p *pass) ringOf(name string) *v1alpha1.ReleaseRingStatus {
	at := slices.IndexFunc(p.status.Rings, func(ring v1alpha1.ReleaseRingStatus) bool { return ring.Name == name })
	if at < 0 {
		return nil
	}
	return &p.status.Rings[at]
}

// found is an application as it is seen for the first time. What it is at may be a branch, to which it would be wrong to
// return it later: so its last good revision is the commit, if Argo CD says which it is.
func found(app *Application) v1alpha1.ReleaseApplicationStatus {
	good := app.Target
	if app.Sync.Commit != "" && app.Sync.Target == app.Target && app.Sync.Repository == app.Repository {
		good = app.Sync.Commit
	}
	return v1alpha1.ReleaseApplicationStatus{Name: app.Name, TargetRevision: app.Target, LastGoodRevision: good}
}

func (p *pass) enrollRings() {
	known := map[string]v1alpha1.ReleaseRingStatus{}
	for _, ring := range p.status.Rings {
		known[ring.Name] = ring
	}
	list := make([]v1alpha1.ReleaseRingStatus, 0, len(p.spec.Rings))
	for i := range p.spec.Rings {
		ring, old := known[p.spec.Rings[i].Name]
		if !old {
			ring = v1alpha1.ReleaseRingStatus{Name: p.spec.Rings[i].Name, Phase: v1alpha1.RingWaiting}
		}
		ring.Applications, ring.InEffect = int32(len(p.membersOf(ring.Name))), 0
		list = append(list, ring)
	}
	p.status.Rings = list
}

// membersOf returns the entries of a ring's applications, to be changed in place.
func (p *pass) membersOf(ring string) []*v1alpha1.ReleaseApplicationStatus {
	var out []*v1alpha1.ReleaseApplicationStatus
	for i := range p.status.Applications {
		if p.status.Applications[i].Ring == ring {
			out = append(out, &p.status.Applications[i])
		}
	}
	return out
}

func names(apps []*v1alpha1.ReleaseApplicationStatus) string {
	list := make([]string, 0, len(apps))
	for _, app := range apps {
		list = append(list, app.Name)
	}
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

func nilWhenEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
