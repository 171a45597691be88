package acceptance_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/argocd"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

func TestReleaseAndRollback(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.applications("a", "b")
	require.NoError(t, f.client.Create(f.ctx, f.guard("tenants")))
	f.is("tenants", metav1.ConditionTrue, v1alpha1.ReasonReady)
	require.Equal(t, "v1", f.target("a"))
	require.Equal(t, "v1", f.target("b"))

	f.breaks(func(app, revision string) string {
		if app == "a" && revision == "bad" {
			return "Degraded"
		}
		return ""
	})
	f.edit("tenants", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "bad" })
	bad := f.is("tenants", metav1.ConditionFalse, v1alpha1.ReasonRolledBack)
	require.Equal(t, v1alpha1.FailureHealth, bad.Status.BadRevision.Reason)
	f.eventually("a runs v1 again", func() bool {
		return f.target("a") == "v1" && f.get("tenants").Status.Applications[0].State == "in effect"
	})
	require.Equal(t, "v1", f.target("b"))
	f.eventually("events tell of it", func() bool {
		seen := f.events("tenants")
		return seen[v1alpha1.ReasonRolledBack] && seen[v1alpha1.ReasonRingStarted] && seen[v1alpha1.ReasonReleaseComplete]
	})

	// An operator that restarts does not try it again, and puts back what somebody else sets.
	f.stop()
	f.set("a", "bad")
	f.run()
	f.eventually("a is put back", func() bool { return f.target("a") == "v1" })

	f.edit("tenants", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "v2" })
	f.is("tenants", metav1.ConditionTrue, v1alpha1.ReasonReady)
	require.Equal(t, "v2", f.target("b"))
}

// set changes a target revision, as somebody who may does.
func (f *fixture) set(app, revision string) {
	f.Helper()
	obj := &argocd.Application{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: app}}
	patch := fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}}}`, revision)
	require.NoError(f, f.client.Patch(f.ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("somebody-else")))
}

// The guard owns one field of an Application, and leaves the rest to others.
func TestGuardOwnsTheTargetRevisionAlone(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.applications("a", "b")
	require.NoError(t, f.client.Create(f.ctx, f.guard("tenants")))
	f.is("tenants", metav1.ConditionTrue, v1alpha1.ReasonReady)
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(argocd.GroupVersion.WithKind("Application"))
	require.NoError(t, f.client.Get(f.ctx, client.ObjectKey{Namespace: f.ns, Name: "a"}, obj))
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager == reconcile.FieldManager {
			require.Equal(t, metav1.ManagedFieldsOperationApply, entry.Operation)
			require.JSONEq(t, `{"f:spec":{"f:source":{"f:targetRevision":{}}}}`, string(entry.FieldsV1.GetRawBytes()))
		}
	}
	path, _, _ := unstructured.NestedString(obj.Object, "spec", "source", "path")
	require.Equal(t, "a", path)
}

// A sync of a bad revision that hangs would keep Argo CD from going back: it is ended.
func TestHangingSyncIsEnded(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.applications("a", "b")
	require.NoError(t, f.client.Create(f.ctx, f.guard("tenants", func(s *v1alpha1.ReleaseGuardSpec) { s.SyncTimeoutSeconds = 10 })))
	f.is("tenants", metav1.ConditionTrue, v1alpha1.ReasonReady)
	f.breaks(func(_, revision string) string {
		if revision == "hangs" {
			return "Hanging"
		}
		return ""
	})
	f.edit("tenants", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "hangs" })
	bad := f.is("tenants", metav1.ConditionFalse, v1alpha1.ReasonRolledBack)
	require.Equal(t, v1alpha1.FailureSyncTimeout, bad.Status.BadRevision.Reason)
	f.eventually("a runs v1 again", func() bool { return f.get("tenants").Status.Applications[0].State == "in effect" })
}

// Argo CD does not try a revision again whose sync failed, so another attempt asks for a sync.
func TestAnotherAttemptAfterAFailedSync(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.applications("a", "b")
	require.NoError(t, f.client.Create(f.ctx, f.guard("tenants")))
	f.is("tenants", metav1.ConditionTrue, v1alpha1.ReasonReady)
	f.breaks(func(_, revision string) string {
		if revision == "v2" {
			return "Failing"
		}
		return ""
	})
	f.edit("tenants", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "v2" })
	bad := f.is("tenants", metav1.ConditionFalse, v1alpha1.ReasonRolledBack)
	require.Contains(t, bad.Status.BadRevision.Message, "the sync ended as Failed")
	f.breaks(func(string, string) string { return "" })
	f.edit("tenants", func(s *v1alpha1.ReleaseGuardSpec) { s.Attempt = 1 })
	f.is("tenants", metav1.ConditionTrue, v1alpha1.ReasonReady)
	require.Equal(t, "v2", f.target("b"))
}

func TestChecksAskPrometheus(t *testing.T) {
	t.Parallel()
	var value atomic.Value
	value.Store("1")
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,%q]}]}}`, value.Load())
	}))
	t.Cleanup(prometheus.Close)
	f := start(t, prometheus.URL)
	f.applications("a", "b")
	require.NoError(t, f.client.Create(f.ctx, f.guard("tenants", func(s *v1alpha1.ReleaseGuardSpec) {
		s.Checks = []v1alpha1.ReleaseCheck{{Name: "availability", Query: "x", Min: new(resource.MustParse("0.9")), IntervalSeconds: 1}}
		s.Rings[0].SoakSeconds = new(int32(2))
	})))
	done := f.is("tenants", metav1.ConditionTrue, v1alpha1.ReasonReady)
	require.Equal(t, v1alpha1.CheckPassed, done.Status.Checks[0].Result)

	value.Store("0.5")
	f.edit("tenants", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "v2" })
	bad := f.is("tenants", metav1.ConditionFalse, v1alpha1.ReasonRolledBack)
	require.Equal(t, v1alpha1.FailureCheck, bad.Status.BadRevision.Reason)
	require.Equal(t, "check availability: 0.5 is below the minimum 0.9, 1 times in a row", bad.Status.BadRevision.Message)
	require.Equal(t, "v1", f.target("b"))

	f.edit("tenants", func(s *v1alpha1.ReleaseGuardSpec) {
		s.Prometheus = &v1alpha1.ReleasePrometheus{URL: "http://169.254.169.254"}
	})
	f.is("tenants", metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
}

// Of two guards of one application the older has it.
func TestTwoGuards(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.applications("a", "b")
	older := f.guard("zz-older")
	require.NoError(t, f.client.Create(f.ctx, older))
	f.is("zz-older", metav1.ConditionTrue, v1alpha1.ReasonReady)
	f.eventually("a second has passed", func() bool { return metav1.Now().Unix() > older.CreationTimestamp.Unix() })
	require.NoError(t, f.client.Create(f.ctx, f.guard("younger", func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "v9" })))
	f.is("younger", metav1.ConditionFalse, v1alpha1.ReasonRingsInvalid)
	require.Equal(t, "v1", f.target("a"))
	require.NoError(t, f.client.Delete(f.ctx, older))
	f.is("younger", metav1.ConditionTrue, v1alpha1.ReasonReady)
	require.Equal(t, "v9", f.target("a"))
}

func TestValidation(t *testing.T) {
	t.Parallel()
	f := start(t)
	for name, change := range map[string]func(*v1alpha1.ReleaseGuardSpec){
		"HEAD moves":                func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "HEAD" },
		"Invalid value":             func(s *v1alpha1.ReleaseGuardSpec) { s.Revision = "--upload-pack=x" },
		"set applications (names)":  func(s *v1alpha1.ReleaseGuardSpec) { s.Rings[0].Applications = nil },
		"set min, max":              func(s *v1alpha1.ReleaseGuardSpec) { s.Checks = []v1alpha1.ReleaseCheck{{Name: "x", Query: "x"}} },
		"spec.rings: Required":      func(s *v1alpha1.ReleaseGuardSpec) { s.Rings = nil },
		"Duplicate value":           func(s *v1alpha1.ReleaseGuardSpec) { s.Rings[1].Name = s.Rings[0].Name },
		"greater than or equal to ": func(s *v1alpha1.ReleaseGuardSpec) { s.SyncTimeoutSeconds = 1 },
	} {
		err := f.client.Create(f.ctx, f.guard("invalid", change))
		require.ErrorContains(t, err, name)
	}
}
