//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/test/cluster"
)

// testCluster is a local cluster that one test started and removes.
type testCluster struct {
	*cluster.Cluster
	config *rest.Config
	client client.WithWatch
}

// startCluster starts a cluster with the images of env loaded. It is removed when the test ends.
func startCluster(t *testing.T, env environment, name string) *testCluster {
	t.Helper()
	state := t.TempDir()
	run := func(verb string, args ...string) command {
		args = append([]string{verb, "--name", name, "--state-dir", state}, args...)
		return command{path: filepath.Join(env.ownBin, "cluster"), args: args, timeout: 3 * time.Minute}
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		output, err := run("down").run(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Errorf("remove the cluster: %v\n%s", err, output)
		}
	})
	run("up", "--bin-dir", env.kubeBin, "--network-policy", filepath.Join(env.netpolBin, "kube-network-policies")).must(t)
	c, err := cluster.Open(state, name)
	require.NoError(t, err)
	archives, err := filepath.Glob(filepath.Join(env.images, "*.tar"))
	require.NoError(t, err)
	require.NoError(t, c.LoadImages(t.Context(), archives...))

	tc := &testCluster{Cluster: c}
	tc.config, err = clientcmd.BuildConfigFromFlags("", tc.Kubeconfig())
	require.NoError(t, err)
	tc.config.QPS, tc.config.Burst = 100, 200
	tc.client, err = client.NewWithWatch(tc.config, client.Options{Scheme: newScheme()})
	require.NoError(t, err)
	return tc
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// eventually waits until check returns "", and fails with what it returned last when the deadline passes.
func eventually(t *testing.T, timeout time.Duration, what string, check func(ctx context.Context) string) {
	t.Helper()
	last := "not checked yet"
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == "", nil
	})
	require.NoErrorf(t, err, "%s, within %s: %s", what, timeout, last)
}
