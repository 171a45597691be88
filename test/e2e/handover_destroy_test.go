//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/test/gitops"
)

// refuseDestroy has Pulumi destroy a stack of which GitOps owns something, with its program and without: it says what to do
// instead, and touches nothing.
func (j *handoverJob) refuseDestroy(t *testing.T) {
	j.refused(t)
	j.refused(t, "--skip-preview")
	j.refused(t, "--skip-preview", "--run-program")
	j.settle(t, j.git.Head())
	j.stack.preview("--expect-no-changes").must(t)
}

func (j *handoverJob) refused(t *testing.T, flags ...string) {
	t.Helper()
	output, err := j.stack.update("destroy", append([]string{"--yes"}, flags...)...).run(t.Context())
	require.Error(t, err, "%v: %s", flags, output)
	require.Contains(t, output, "run `make destroy`", flags)
	j.requireUnchanged(t)
}

// destroy destroys everything by one command, whoever owns it.
func (j *handoverJob) destroy(t *testing.T) {
	last := j.handover("-to", "pulumi", "-destroy")
	if j.made {
		last = j.make("destroy", "ENV=dev")
	}
	t.Log(last.must(t))
	j.requireEmpty(t)
}

// destroyAlone does so without the controllers that owned it until now, and of a stack that somebody has changed and broken
// meanwhile.
func (j *handoverJob) destroyAlone(t *testing.T) {
	j.requireHeld(t)
	j.keeper.stop()
	j.patchQuota(t, `{"spec":{"hard":{"pods":"11"}}}`)
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "default-deny"}}
	require.NoError(t, j.cluster.client.Delete(t.Context(), policy))
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "holdfast-operator"}}
	patch := `{"spec":{"template":{"spec":{"serviceAccountName":"nobody"}}}}`
	require.NoError(t, j.cluster.client.Patch(t.Context(), operator, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("by-hand")))
	j.destroy(t)
}

// bringUpFromGit brings the stack up again, by what Git holds, with a cascade.
func (j *handoverJob) bringUpFromGit(t *testing.T) {
	j.reload(t)
	j.stack.config["holdfast:ownership"] = "gitops"
	j.stack.section("gitops")["cascade"] = true
	j.stack.save(t)
	j.stack.up().must(t)
	j.settle(t, j.git.Head()) // pulumi up waits until the ApplicationSet has made the tenants' Applications, not for these
	require.NotEmpty(t, j.keeper.cascades(t.Context()))
	j.openSession(t)
}

// requireEmpty sees that the cluster is as it was before the stack, but for the keepers' own namespaces and definitions.
func (j *handoverJob) requireEmpty(t *testing.T) {
	t.Helper()
	var namespaces corev1.NamespaceList
	require.NoError(t, j.cluster.client.List(t.Context(), &namespaces))
	for _, namespace := range namespaces.Items {
		require.Contains(t, []string{"default", "kube-system", "kube-public", "kube-node-lease", gitops.ArgoCDNamespace, gitops.FluxNamespace}, namespace.Name)
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	require.NoError(t, j.cluster.client.List(t.Context(), &definitions))
	for _, definition := range definitions.Items {
		require.NotEqual(t, "dist.system", definition.Spec.Group)
	}
	for _, kind := range j.keeper.kinds() {
		left, err := j.cluster.list(t.Context(), kind, "")
		require.NoError(t, err)
		require.Empty(t, left)
	}
}
