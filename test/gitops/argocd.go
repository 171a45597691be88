package gitops

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// ArgoCDNamespace is where Argo CD looks for its Applications.
const ArgoCDNamespace = "argocd"

// argoCDObjects are what its controllers need to find, and all that an installation has beside its Deployments. They
// overlook a ConfigMap and a Secret without the label. There is no project "default": what is synced has one of its own.
const argoCDObjects = `
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: argocd-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
- apiVersion: v1
  kind: Secret
  metadata: {name: argocd-secret, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
  stringData: {server.secretkey: of-a-test}
`

// ArgoCD is what of Argo CD keeps a cluster as Git says: redis, the repository server, the application controller and the
// ApplicationSet controller.
type ArgoCD struct {
	client    client.Client
	processes []*process
}

// StartArgoCD installs Argo CD into the cluster of a kubeconfig, with the controllers as processes on this machine, and
// waits until they serve. bin is the folder of the tool group argocd. It ends with the test; its objects in the cluster
// stay.
func StartArgoCD(tb testing.TB, kubeconfig, bin string) *ArgoCD {
	tb.Helper()
	a := &ArgoCD{client: connect(tb, kubeconfig)}
	install(tb, a.client, filepath.Join(bin, "crds"), ArgoCDNamespace)
	var objects []map[string]any
	if err := yaml.Unmarshal([]byte(argoCDObjects), &objects); err != nil {
		tb.Fatalf("Argo CD's objects: %v", err)
	}
	for _, object := range objects {
		apply(tb, a.client, &unstructured.Unstructured{Object: object})
	}
	a.start(tb, kubeconfig, bin)
	return a
}

func (a *ArgoCD) start(tb testing.TB, kubeconfig, bin string) {
	tb.Helper()
	dir := tb.TempDir()
	env := argoCDEnvironment(tb, dir, kubeconfig, bin)
	ports := freePorts(tb, 7)
	redis, repo, repoMetrics, metrics := ports[0], ports[1], ports[2], ports[3]
	run := func(ready func(context.Context) bool, name, path string, args ...string) {
		p := start(tb, dir, name, env, path, args...)
		a.processes = append(a.processes, p)
		p.await(tb, ready)
	}
	run(listens(local(redis)), "redis", "redis-server",
		"--bind", "127.0.0.1", "--port", strconv.Itoa(redis), "--save", "", "--appendonly", "no", "--dir", dir)
	run(answers("http://"+local(repoMetrics)+"/metrics"), "repo-server", filepath.Join(bin, "argocd-repo-server"),
		"--address", "127.0.0.1", "--port", strconv.Itoa(repo),
		"--metrics-address", "127.0.0.1", "--metrics-port", strconv.Itoa(repoMetrics),
		"--redis", local(redis), "--disable-tls", "--logformat", "text",
		// What is in Git is asked for anew all the time, so that a test needs no webhook.
		"--repo-cache-expiration", "10s", "--default-cache-expiration", "30s", "--revision-cache-expiration", "1s")
	run(answers("http://"+local(metrics)+"/healthz"), "application-controller", filepath.Join(bin, "argocd-application-controller"),
		"--kubeconfig", kubeconfig, "--namespace", ArgoCDNamespace, "--redis", local(redis),
		"--repo-server", local(repo), "--repo-server-plaintext", "--metrics-port", strconv.Itoa(metrics),
		"--app-resync", "5", "--app-resync-jitter", "0", "--self-heal-timeout-seconds", "1",
		"--status-processors", "4", "--operation-processors", "4", "--logformat", "text")
	run(answers("http://"+local(ports[5])+"/metrics"), "applicationset-controller", filepath.Join(bin, "argocd-applicationset-controller"),
		"--kubeconfig", kubeconfig, "--namespace", ArgoCDNamespace,
		"--argocd-repo-server", local(repo), "--repo-server-plaintext",
		"--probe-addr", local(ports[4]), "--metrics-addr", local(ports[5]), "--webhook-addr", local(ports[6]),
		"--concurrent-reconciliations", "2", "--logformat", "text")
}

// argoCDEnvironment keeps all files in dir, where they are on no other test's way.
func argoCDEnvironment(tb testing.TB, dir, kubeconfig, bin string) []string {
	tb.Helper()
	for _, name := range []string{"ssh", "tls", "gpg/keys", "gpg/source", "plugins", "tmp", "home"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ssh", "ssh_known_hosts"), nil, 0o600); err != nil {
		tb.Fatalf("%v", err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return []string{
		"KUBECONFIG=" + kubeconfig, "HOME=" + in("home"), "TMPDIR=" + in("tmp"), "PATH=" + bin + ":" + os.Getenv("PATH"),
		"ARGOCD_FAKE_IN_CLUSTER=true", // the kubeconfig's cluster is the one that Argo CD believes to run in
		"ARGOCD_GPG_ENABLED=false", "ARGOCD_GNUPGHOME=" + in("gpg/keys"), "ARGOCD_GPG_DATA_PATH=" + in("gpg/source"),
		"ARGOCD_SSH_DATA_PATH=" + in("ssh"), "ARGOCD_TLS_DATA_PATH=" + in("tls"),
		"ARGOCD_PLUGINSOCKFILEPATH=" + in("plugins"), "ARGOCD_ASK_PASS_SOCK=" + in("ask-pass.sock"),
	}
}

// Refresh has Argo CD compare an Application with Git now, instead of within seconds.
func (a *ArgoCD) Refresh(ctx context.Context, name string) error {
	return annotate(ctx, a.client, "argoproj.io/v1alpha1", "Application", ArgoCDNamespace, name, "argocd.argoproj.io/refresh", "hard")
}

// RefreshSet has Argo CD look for the folders of an ApplicationSet now.
func (a *ArgoCD) RefreshSet(ctx context.Context, name string) error {
	return annotate(ctx, a.client, "argoproj.io/v1alpha1", "ApplicationSet", ArgoCDNamespace, name, "argocd.argoproj.io/application-set-refresh", "true")
}

// Stop ends the controllers, as if they crashed. Their objects stay.
func (a *ArgoCD) Stop() {
	for i := len(a.processes) - 1; i >= 0; i-- {
		a.processes[i].stop()
	}
}
