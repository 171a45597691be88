package release

import (
	"fmt"
	"regexp"
	"time"
)

// Values of Argo CD's fields.
const (
	syncSynced     = "Synced"
	syncOutOfSync  = "OutOfSync"
	healthHealthy  = "Healthy"
	healthDegraded = "Degraded"
	healthMissing  = "Missing"
	phaseRunning   = "Running"
	phaseEnding    = "Terminating"
	phaseSucceeded = "Succeeded"
)

// Application is what was observed of an Argo CD Application.
type Application struct {
	Name   string
	Labels map[string]string
	// Target is spec.source.targetRevision, and Repository spec.source.repoURL.
	Target, Repository string
	// Unsupported says why its revision cannot be moved. Empty: it can.
	Unsupported string
	// Deleting tells that it is on its way out.
	Deleting bool
	// Sync is what Argo CD last found.
	Sync Sync
	// Health is status.health.status.
	Health string
	// Reconciled is when Argo CD last compared it. Zero: never.
	Reconciled time.Time
	// Requested tells that an operation was asked for and has not begun.
	Requested bool
	// Operation is the last one. Nil: there was none.
	Operation *Operation
	// Fault is what Argo CD says is wrong with the application itself, such as a revision that does not exist.
	Fault string
	// Prune and SyncOptions are what Argo CD syncs it with by itself.
	Prune       bool
	SyncOptions []string
	// Lagging are workloads that are not Ready at their present generation, in words.
	Lagging []string
}

// Sync is a comparison with Git.
type Sync struct {
	// Status is Synced, OutOfSync or Unknown.
	Status string
	// Target is the target revision that was compared with, and Repository its repository.
	Target, Repository string
	// Commit is what the target revision was then.
	Commit string
}

// Operation is a sync.
type Operation struct {
	// Phase is Running, Terminating, Succeeded, Failed or Error.
	Phase string
	// Target is the target revision that is synced. Empty: not known.
	Target string
	// Finished is when it ended. Zero: it has not.
	Finished time.Time
	// Message says more.
	Message string
}

func (o *Operation) running() bool {
	return o != nil && (o.Phase == phaseRunning || o.Phase == phaseEnding)
}

// stand is how an application stands to a revision.
type stand string

const (
	standGood    stand = "good"
	standPending stand = "pending"
	standFailing stand = "failing"
	standMoved   stand = "moved"
)

// What is said of an application that is as wanted, of one whose target revision is still to be set, and of one that is no
// member of its ring for now.
const (
	inEffect = "in effect"
	notThere = "it is not in its ring now"
	notSet   = "the target revision is not set yet"
)

// givenUp tells whether the last sync of a revision failed before the application was given it at a time: in an earlier attempt.
// Argo CD does not try such a revision again by itself.
func (a *Application) givenUp(wanted string, since time.Time) bool {
	op := a.Operation
	return op != nil && !op.running() && op.Target == wanted && op.Phase != phaseSucceeded && op.Finished.Before(since)
}

// assess tells how an application stands to a revision that it was given at a time, and what is missing in words that are
// equal for equal states. commit is what the revision was in the same repository before; empty: not known yet.
//
// The order matters: nothing that is said about an earlier revision is looked at.
func assess(app *Application, wanted, commit string, since time.Time) (stand, string) {
	op := app.Operation
	switch {
	case app.Target != wanted:
		return standPending, notSet
	case app.Fault != "":
		return standPending, app.Fault
	case app.Sync.Target != wanted || app.Sync.Repository != app.Repository:
		return standPending, "Argo CD has not compared it with the revision yet"
	case commit != "" && app.Sync.Commit != "" && app.Sync.Commit != commit:
		return standMoved, fmt.Sprintf("%s is commit %s here, and was %s before", wanted, short(app.Sync.Commit), short(commit))
	case app.Requested || op.running():
		return standPending, "a sync is running"
	case app.givenUp(wanted, since) && app.Sync.Status != syncSynced:
		return standPending, "its sync failed in an earlier attempt, and another one is to begin"
	case op != nil && op.Target == wanted && op.Phase != phaseSucceeded && !app.givenUp(wanted, since):
		return standFailing, "the sync ended as " + op.Phase
	case app.Sync.Status != syncSynced:
		return standPending, "it is " + orNone(app.Sync.Status)
	case op != nil && app.Reconciled.Before(op.Finished):
		return standPending, "Argo CD has not looked at it since the sync"
	case app.Health == healthDegraded || app.Health == healthMissing:
		return standFailing, "it is " + app.Health
	case app.Health != healthHealthy:
		return standPending, "it is " + orNone(app.Health)
	case len(app.Lagging) > 0:
		return standPending, app.Lagging[0]
	}
	return standGood, inEffect
}

func orNone(text string) string {
	if text == "" {
		return "of no known state"
	}
	return text
}

var fullCommit = regexp.MustCompile(`^[0-9a-f]{40}$`)

// short shortens a commit, and leaves tags as they are.
func short(revision string) string {
	if fullCommit.MatchString(revision) {
		return revision[:12]
	}
	return revision
}

// Sample is the answer to a query.
type Sample struct {
	// Time when it was asked. Zero: it was not.
	Time time.Time
	// Values of the series.
	Values []float64
	// Err says why there is no answer. Empty, with no values: there is no data.
	Err string
}

// Observation is what one decision knows beside spec and status.
type Observation struct {
	// Applications of the namespace, in any order.
	Applications []Application
	// Taken are applications that an older guard has, with its name.
	Taken map[string]string
	// Samples are the last answers, by the name of the check.
	Samples map[string]Sample
}
