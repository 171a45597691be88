package releaseguard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/argocd"
	"github.com/holdfast-io/holdfast/operator/internal/plan/release"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

func (c *controller) gather(ctx context.Context, reader client.Reader, guard *v1alpha1.ReleaseGuard) (Observation, error) {
	out := Observation{applications: map[string]client.Object{}}
	url, problem := c.prometheus(guard)
	if problem != nil {
		out.problem = problem
		return out, nil
	}
	list := &argocd.ApplicationList{}
	if err := reader.List(ctx, list, client.InNamespace(guard.Namespace)); err != nil {
		return out, fmt.Errorf("list Applications: %w", err)
	}
	for i := range list.Items {
		app := &list.Items[i]
		out.applications[app.Name] = app
		seen := observe(app)
		seen.Lagging = c.lagging(ctx, app)
		out.observed.Applications = append(out.observed.Applications, seen)
	}
	var err error
	if out.observed.Taken, err = taken(ctx, reader, guard, out.observed.Applications); err != nil {
		return out, err
	}
	out.observed.Samples = c.samples.ask(ctx, guard.Namespace+"/"+guard.Name, url, release.Checks(&guard.Spec, &guard.Status))
	return out, nil
}

// prometheus returns whom a guard's queries go to.
func (c *controller) prometheus(guard *v1alpha1.ReleaseGuard) (string, error) {
	allowed := c.settings.Prometheus
	switch {
	case len(guard.Spec.Checks) == 0:
		return "", nil
	case guard.Spec.Prometheus == nil && len(allowed) > 0:
		return allowed[0], nil
	case guard.Spec.Prometheus == nil:
		return "", reconcile.Stalled(v1alpha1.ReasonInvalidSpec, "spec.checks: the operator's configuration lists no Prometheus (releaseGuard.prometheus)")
	case !slices.Contains(allowed, guard.Spec.Prometheus.URL):
		return "", reconcile.Stalled(v1alpha1.ReasonInvalidSpec, "spec.prometheus.url: %s is not one that the operator's configuration lists (releaseGuard.prometheus): %s",
			guard.Spec.Prometheus.URL, orNone(strings.Join(allowed, ", ")))
	}
	return guard.Spec.Prometheus.URL, nil
}

func orNone(list string) string {
	if list == "" {
		return "none"
	}
	return list
}

// taken returns the applications that older guards of the namespace have. One that is being deleted has none any more.
func taken(ctx context.Context, reader client.Reader, guard *v1alpha1.ReleaseGuard, apps []release.Application) (map[string]string, error) {
	list := &v1alpha1.ReleaseGuardList{}
	if err := reader.List(ctx, list, client.InNamespace(guard.Namespace)); err != nil {
		return nil, fmt.Errorf("list ReleaseGuards: %w", err)
	}
	out := map[string]string{}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == guard.UID || other.DeletionTimestamp != nil || !older(other, guard) {
			continue
		}
		members, _ := release.Members(&other.Spec, apps)
		for name := range members {
			out[name] = other.Name
		}
	}
	return out, nil
}

func older(a, b *v1alpha1.ReleaseGuard) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name)) < 0
}

// observe is an Application as the decision sees it.
func observe(app *argocd.Application) release.Application {
	out := release.Application{
		Name: app.Name, Labels: app.Labels, Deleting: app.DeletionTimestamp != nil, Unsupported: unsupported(&app.Spec),
		Sync: release.Sync{
			Status: app.Status.Sync.Status, Target: app.Status.Sync.ComparedTo.Source.TargetRevision,
			Repository: app.Status.Sync.ComparedTo.Source.RepoURL, Commit: app.Status.Sync.Revision,
		},
		Health: app.Status.Health.Status, Requested: app.Operation != nil && !operates(app), Fault: fault(app),
	}
	if app.Spec.Source != nil {
		out.Target, out.Repository = app.Spec.Source.TargetRevision, app.Spec.Source.RepoURL
	}
	if policy := app.Spec.SyncPolicy; policy != nil {
		out.SyncOptions, out.Prune = policy.SyncOptions, policy.Automated != nil && policy.Automated.Prune
	}
	if app.Status.ReconciledAt != nil {
		out.Reconciled = app.Status.ReconciledAt.Time
	}
	if state := app.Status.OperationState; state != nil {
		out.Operation = &release.Operation{Phase: state.Phase, Target: targetOf(state), Message: state.Message}
		// A sync that is to be tried again is Running and has a time at which its last try ended.
		if state.FinishedAt != nil && state.Phase != "Running" {
			out.Operation.Finished = state.FinishedAt.Time
		}
	}
	return out
}

// operates tells whether the requested operation is the one that runs.
func operates(app *argocd.Application) bool {
	state := app.Status.OperationState
	return state != nil && (state.Phase == "Running" || state.Phase == "Terminating")
}

func targetOf(state *argocd.OperationState) string {
	switch {
	case state.SyncResult != nil && state.SyncResult.Source.RepoURL != "":
		return state.SyncResult.Source.TargetRevision
	case state.Operation.Sync != nil && state.Operation.Sync.Source != nil:
		return state.Operation.Sync.Source.TargetRevision
	}
	return ""
}

func unsupported(spec *argocd.ApplicationSpec) string {
	switch {
	case spec.SourceHydrator != nil:
		return "has a sourceHydrator, whose revisions the guard does not move"
	case len(spec.Sources) > 0:
		return "has several sources, of which the guard does not know which to move"
	case spec.Source == nil:
		return "has no spec.source"
	}
	return ""
}

// fault is the kind of error that Argo CD found in an Application itself. Its text stays out: it may differ each time.
func fault(app *argocd.Application) string {
	for _, condition := range app.Status.Conditions {
		if slices.Contains([]string{"ComparisonError", "InvalidSpecError", "UnknownError"}, condition.Type) {
			return "Argo CD reports a " + condition.Type + " (status.conditions of the Application)"
		}
	}
	return ""
}

// lagging returns the LeaseServices of an application that are not Ready at their present generation, in words. Argo CD's
// health is of the moment that it looked; the object's own status cannot be older than its spec without saying so.
//
// One that cannot be read (its namespace is none of the operator's, or the cluster is another one) is taken at Argo CD's
// word: this look comes on top of Argo CD's, and what the operator may read must not decide whether a release fails.
func (c *controller) lagging(ctx context.Context, app *argocd.Application) []string {
	here := app.Spec.Destination.Server == "https://kubernetes.default.svc" || app.Spec.Destination.Name == "in-cluster"
	if c.Workloads == nil || !here {
		return nil
	}
	var out []string
	for _, resource := range app.Status.Resources {
		if resource.Group != v1alpha1.GroupVersion.Group || resource.Kind != "LeaseService" {
			continue
		}
		service := &v1alpha1.LeaseService{}
		if c.Workloads.Get(ctx, types.NamespacedName{Namespace: resource.Namespace, Name: resource.Name}, service) != nil {
			continue
		}
		name := fmt.Sprintf("LeaseService %s/%s", resource.Namespace, resource.Name)
		switch {
		case service.Status.ObservedGeneration != service.Generation:
			out = append(out, name+" has changed since its operator looked at it")
		case !meta.IsStatusConditionTrue(service.Status.Conditions, v1alpha1.ConditionReady):
			out = append(out, name+" is not Ready")
		}
	}
	slices.Sort(out)
	return out
}
