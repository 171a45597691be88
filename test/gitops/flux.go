package gitops

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FluxNamespace is where Flux's own objects go by custom; its controllers watch all namespaces.
const FluxNamespace = "flux-system"

// Flux is its source controller and its kustomize controller.
type Flux struct {
	client    client.Client
	processes []*process
}

// StartFlux installs Flux into the cluster of a kubeconfig, with the controllers as processes on this machine, and waits
// until they are ready. bin is the folder of the tool group flux. It ends with the test; its objects in the cluster stay.
func StartFlux(tb testing.TB, kubeconfig, bin string) *Flux {
	tb.Helper()
	f := &Flux{client: connect(tb, kubeconfig)}
	install(tb, f.client, filepath.Join(bin, "crds"), FluxNamespace)
	dir := tb.TempDir()
	for _, name := range []string{"data", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	env := []string{"KUBECONFIG=" + kubeconfig, "RUNTIME_NAMESPACE=" + FluxNamespace, "TMPDIR=" + filepath.Join(dir, "tmp")}
	ports := freePorts(tb, 5)
	run := func(name string, metrics, health int, args ...string) {
		args = append(args, "--watch-all-namespaces", "--enable-leader-election=false", "--events-addr=",
			"--metrics-addr="+local(metrics), "--health-addr="+local(health))
		p := start(tb, dir, name, env, filepath.Join(bin, name), args...)
		f.processes = append(f.processes, p)
		p.await(tb, answers("http://"+local(health)+"/readyz"))
	}
	run("source-controller", ports[0], ports[1],
		"--storage-path="+filepath.Join(dir, "data"), "--storage-addr="+local(ports[2]), "--storage-adv-addr="+local(ports[2]))
	// By default it looks half a minute later whether what a Kustomization depends on has become ready.
	run("kustomize-controller", ports[3], ports[4], "--requeue-dependency=1s")
	return f
}

// RefreshSource has Flux look at a GitRepository now; Kustomizations follow what it finds.
func (f *Flux) RefreshSource(ctx context.Context, namespace, name string) error {
	return annotate(ctx, f.client, "source.toolkit.fluxcd.io/v1", "GitRepository", namespace, name, requestedAt, time.Now().Format(time.RFC3339Nano))
}

// Refresh has Flux apply a Kustomization now.
func (f *Flux) Refresh(ctx context.Context, namespace, name string) error {
	return annotate(ctx, f.client, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace, name, requestedAt, time.Now().Format(time.RFC3339Nano))
}

const requestedAt = "reconcile.fluxcd.io/requestedAt"

// Stop ends the controllers, as if they crashed. Their objects stay.
func (f *Flux) Stop() {
	for i := len(f.processes) - 1; i >= 0; i-- {
		f.processes[i].stop()
	}
}
