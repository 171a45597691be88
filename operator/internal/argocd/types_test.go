package argocd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/holdfast-io/holdfast/operator/internal/argocd"
)

// synced is an Application as Argo CD writes it, with fields beside those that are read here.
const synced = `{
  "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
  "metadata": {"name": "team-a", "namespace": "argocd"},
  "operation": {"initiatedBy": {"automated": true}, "sync": {"source": {"repoURL": "https://git.example.com/tenants", "targetRevision": "v2"}}},
  "spec": {
    "project": "tenants",
    "destination": {"server": "https://kubernetes.default.svc", "namespace": "team-a"},
    "source": {"repoURL": "https://git.example.com/tenants", "path": "team-a", "targetRevision": "v2"},
    "syncPolicy": {"automated": {"prune": true, "selfHeal": true}, "syncOptions": ["ServerSideApply=true"]}
  },
  "status": {
    "conditions": [{"type": "SyncError", "message": "refused", "lastTransitionTime": "2026-11-30T12:00:00Z"}],
    "health": {"status": "Healthy", "lastTransitionTime": "2026-11-30T12:00:00Z"},
    "reconciledAt": "2026-11-30T12:00:05Z",
    "resources": [{"group": "dist.system", "version": "v1alpha1", "kind": "LeaseService", "namespace": "team-a", "name": "team-a", "status": "Synced"}],
    "sync": {
      "status": "Synced", "revision": "1111111111111111111111111111111111111111",
      "comparedTo": {"source": {"repoURL": "https://git.example.com/tenants", "targetRevision": "v2"}}
    },
    "operationState": {
      "phase": "Succeeded", "message": "successfully synced",
      "startedAt": "2026-11-30T12:00:01Z", "finishedAt": "2026-11-30T12:00:04Z",
      "operation": {"sync": {"source": {"repoURL": "https://git.example.com/tenants", "targetRevision": "v1"}}},
      "syncResult": {"revision": "2222222222222222222222222222222222222222", "source": {"repoURL": "https://git.example.com/tenants", "targetRevision": "v1"}}
    }
  }
}`

func TestAnApplicationIsReadAsArgoCDWritesIt(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, argocd.AddToScheme(scheme))
	object, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode([]byte(synced), nil, nil)
	require.NoError(t, err)
	app, ok := object.(*argocd.Application)
	require.True(t, ok, "%T", object)

	at := func(second int) time.Time { return time.Date(2026, 11, 30, 12, 0, second, 0, time.UTC) }
	source := argocd.Source{RepoURL: "https://git.example.com/tenants", TargetRevision: "v2"}
	former := argocd.Source{RepoURL: source.RepoURL, TargetRevision: "v1"}
	assert.Equal(t, &argocd.Operation{Sync: &argocd.SyncOperation{Source: &source}}, app.Operation)
	assert.Equal(t, argocd.ApplicationSpec{
		Source:      &source,
		Destination: argocd.Destination{Server: "https://kubernetes.default.svc"},
		SyncPolicy:  &argocd.SyncPolicy{Automated: &argocd.Automated{Prune: true}, SyncOptions: []string{"ServerSideApply=true"}},
	}, app.Spec)
	assert.Equal(t, []argocd.Condition{{Type: "SyncError", Message: "refused"}}, app.Status.Conditions)
	assert.Equal(t, []argocd.Resource{{Group: "dist.system", Kind: "LeaseService", Namespace: "team-a", Name: "team-a"}}, app.Status.Resources)
	assert.Equal(t, "Healthy", app.Status.Health.Status)
	assert.True(t, app.Status.ReconciledAt.Time.Equal(at(5)))
	assert.Equal(t, argocd.SyncStatus{
		Status: "Synced", Revision: "1111111111111111111111111111111111111111", ComparedTo: argocd.ComparedTo{Source: source},
	}, app.Status.Sync)

	last := app.Status.OperationState
	require.NotNil(t, last)
	assert.Equal(t, []string{"Succeeded", "successfully synced"}, []string{last.Phase, last.Message})
	assert.Equal(t, &former, last.Operation.Sync.Source)
	assert.Equal(t, &argocd.SyncResult{Source: former, Revision: "2222222222222222222222222222222222222222"}, last.SyncResult)
	assert.True(t, last.StartedAt.Time.Equal(at(1)))
	assert.True(t, last.FinishedAt.Time.Equal(at(4)))
}

// One without an operation, as a new one is.
func TestANewApplicationHasNoOperation(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, argocd.AddToScheme(scheme))
	object, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode([]byte(
		`{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "team-a"}, "spec": {"destination": {}, "project": "tenants"}}`), nil, nil)
	require.NoError(t, err)
	app, ok := object.(*argocd.Application)
	require.True(t, ok, "%T", object)
	assert.Nil(t, app.Operation)
	assert.Nil(t, app.Status.OperationState)
	assert.Nil(t, app.Spec.Source)
}
