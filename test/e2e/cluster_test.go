//go:build e2e

package e2e

import (
	"context"
	"net"
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
	kubeconfig string
	config     *rest.Config
	client     client.WithWatch
	dial       func(ctx context.Context, address string) (net.Conn, error)
	node       func(args ...string) command // the cluster binary
}

// startCluster starts a cluster with the images of env loaded. It is removed when the test ends.
func startCluster(t *testing.T, env environment, name string) *testCluster {
	t.Helper()
	state := t.TempDir()
	run := func(verb string, args ...string) command {
		args = append([]string{verb, "--name", name, "--state-dir", state, "--bin-dir", env.kubeBin}, args...)
		return command{path: filepath.Join(env.ownBin, "cluster"), args: args, timeout: 3 * time.Minute}
	}
	t.Cleanup(func() {
		// The test's context is over by now.
		down := run("down")
		output, err := down.run(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Errorf("remove the cluster: %v\n%s", err, output)
		}
	})
	run("up").must(t)
	archives, err := filepath.Glob(filepath.Join(env.images, "*.tar"))
	require.NoError(t, err)
	run("load-image", archives...).must(t)

	handle, err := cluster.Open(state, name)
	require.NoError(t, err)
	tc := &testCluster{
		kubeconfig: handle.Kubeconfig(),
		node:       func(args ...string) command { return run(args[0], args[1:]...) },
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			return handle.DialContext(ctx, "tcp", address)
		},
	}
	tc.config, err = clientcmd.BuildConfigFromFlags("", tc.kubeconfig)
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
