package releaseguard

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/plan/release"
)

// samples keeps the last answers to the queries of all guards, so that a pass asks only what is due. Losing them costs a
// query. An answer that is due again is of no use, and is dropped whoever asks next: that is how guards that are gone are
// forgotten. It is safe for concurrent use.
type samples struct {
	query Query
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[string]map[string]answered // by guard, and by check
}

type answered struct {
	url, query string
	due        time.Time // when it is to be asked again
	sample     release.Sample
}

func newSamples(query Query, clock clock.PassiveClock) *samples {
	return &samples{query: query, clock: clock, known: map[string]map[string]answered{}}
}

// ask returns the answers to a guard's checks, none older than its interval, and forgets those to other checks. The
// queries are made at once: together they take as long as the slowest.
func (s *samples) ask(ctx context.Context, guard, url string, checks []v1alpha1.ReleaseCheck) map[string]release.Sample {
	s.mu.Lock()
	before := maps.Clone(s.known[guard]) // other guards' passes drop from it what is due
	s.mu.Unlock()
	now := s.clock.Now()
	answers := make([]answered, len(checks))
	var group sync.WaitGroup
	for i := range checks {
		check := &checks[i]
		old, there := before[check.Name]
		interval := time.Duration(check.IntervalSeconds) * time.Second
		if there && old.url == url && old.query == check.Query && now.Sub(old.sample.Time) < interval {
			answers[i] = old
			continue
		}
		group.Go(func() {
			answer := answered{url: url, query: check.Query, due: now.Add(interval), sample: release.Sample{Time: now}}
			values, err := s.query(ctx, url, check.Query)
			if answer.sample.Values = values; err != nil {
				answer.sample.Err = err.Error()
			}
			answers[i] = answer
		})
	}
	group.Wait()
	kept, out := map[string]answered{}, map[string]release.Sample{}
	for i := range checks {
		kept[checks[i].Name], out[checks[i].Name] = answers[i], answers[i].sample
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[guard] = kept
	for other, answers := range s.known {
		maps.DeleteFunc(answers, func(_ string, a answered) bool { return !now.Before(a.due) })
		if len(answers) == 0 {
			delete(s.known, other)
		}
	}
	return out
}
