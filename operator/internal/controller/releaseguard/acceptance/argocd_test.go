package acceptance_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/argocd"
)

const repository = "https://git.example.com/tenants"

func commitOf(revision string) string {
	sum := sha1.Sum([]byte(revision))
	return hex.EncodeToString(sum[:])
}

// argoCD makes one step of Argo CD with each application of a namespace that needs one: it compares, begins a sync, ends it.
// broken tells how an application is at a revision: its health instead of Healthy.
func argoCD(broken func(app, revision string) string) func(context.Context, client.Client, string) error {
	return func(ctx context.Context, c client.Client, namespace string) error {
		list := &argocd.ApplicationList{}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			app := &list.Items[i]
			before := app.DeepCopy()
			if step(app, broken(app.Name, app.Spec.Source.TargetRevision)) {
				if err := c.Patch(ctx, app, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("argocd-controller")); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func running(source argocd.Source, commit string) *argocd.OperationState {
	return &argocd.OperationState{
		Phase: "Running", StartedAt: metav1.Now(), Operation: argocd.Operation{Sync: &argocd.SyncOperation{Source: &source}},
		SyncResult: &argocd.SyncResult{Source: source, Revision: commit},
	}
}

func step(app *argocd.Application, health string) bool {
	now := metav1.Now().Rfc3339Copy()
	status, source := &app.Status, *app.Spec.Source
	if health == "" {
		health = "Healthy"
	}
	op := status.OperationState
	applied := len(status.Resources) == 1 && status.Resources[0].Name == source.TargetRevision
	switch {
	case app.Operation != nil && (op == nil || (op.Phase != "Running" && op.Phase != "Terminating")):
		app.Operation, status.OperationState = nil, running(source, status.Sync.Revision)
	case op != nil && op.Phase == "Terminating":
		op.Phase, op.FinishedAt = "Failed", &now
	case status.Sync.ComparedTo.Source.TargetRevision != source.TargetRevision:
		status.Sync = argocd.SyncStatus{Status: "OutOfSync", ComparedTo: argocd.ComparedTo{Source: source}, Revision: commitOf(source.TargetRevision)}
		if status.ReconciledAt = &now; applied {
			status.Sync.Status = "Synced"
		}
	case op != nil && op.Phase == "Running":
		if health == "Hanging" {
			return false
		}
		if op.Phase, op.FinishedAt = "Succeeded", &now; health == "Failing" {
			op.Phase = "Failed"
			return true
		}
		status.Resources = []argocd.Resource{{Kind: "Revision", Name: op.SyncResult.Source.TargetRevision}}
	case status.Sync.Status == "OutOfSync" && (op == nil || op.SyncResult.Source.TargetRevision != source.TargetRevision):
		status.OperationState = running(source, status.Sync.Revision)
	case !applied: // a sync that failed is not tried again
		return false
	case status.Sync.Status != "Synced" || status.Health.Status != health || (op != nil && status.ReconciledAt.Before(op.FinishedAt)):
		status.Sync.Status, status.Health.Status, status.ReconciledAt = "Synced", health, &now
	default:
		return false
	}
	return true
}
