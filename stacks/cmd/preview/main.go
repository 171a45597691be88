// Command preview shows what a change of a stack's configuration, or of the components, changes in what is deployed:
// the manifests as they are rendered now against those of a revision of this repository, or against a cluster.
//
// It exits with 0 when there is no change, with 2 when there is one, and with 1 when it could not tell.
//
// usage: preview -stack STACK [-base REVISION | -live]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/stacks/internal/gitsource"
	"github.com/holdfast-io/holdfast/stacks/internal/live"
	"github.com/holdfast-io/holdfast/stacks/internal/review"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

const (
	exitSame    = 0
	exitError   = 1
	exitChanged = 2

	timeout = 5 * time.Minute
)

type options struct {
	stack  string
	config string // the stack's file; empty means Pulumi.<stack>.yaml
	base   string // revision to compare with
	folder string // the manifests in it; empty means stacks/gitops/<stack>
	live   bool   // compare with the cluster instead
}

func main() {
	var o options
	flag.StringVar(&o.stack, "stack", "dev", "name of the stack")
	flag.StringVar(&o.config, "config", "", "the stack's file (default Pulumi.<stack>.yaml)")
	flag.StringVar(&o.base, "base", "HEAD", "revision of this repository to compare with")
	flag.StringVar(&o.folder, "folder", "", "folder of the manifests at that revision (default stacks/gitops/<stack>)")
	flag.BoolVar(&o.live, "live", false, "compare with the cluster of KUBECONFIG, by a dry run, instead of a revision")
	flag.Parse()

	log.SetLogger(logr.Discard()) // the Kubernetes client complains when nobody does
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	changed, err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "preview:", err)
	}
	os.Exit(exitCode(changed, err))
}

// exitCode is what a gate decides by. An error is never taken for "no change", nor for a change that is fully shown.
func exitCode(changed bool, err error) int {
	switch {
	case err != nil:
		return exitError
	case changed:
		return exitChanged
	default:
		return exitSame
	}
}

// run prints the difference and reports whether there is one.
func run(ctx context.Context, o options, out io.Writer) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if o.config == "" {
		o.config = "Pulumi." + o.stack + ".yaml"
	}
	if o.folder == "" {
		o.folder = filepath.ToSlash(filepath.Join("stacks", "gitops", o.stack))
	}
	file, err := os.ReadFile(o.config)
	if err != nil {
		return false, fmt.Errorf("stack %q: %w", o.stack, err)
	}
	values, err := platform.StackFile(file)
	if err != nil {
		return false, err
	}
	config, err := platform.ParseConfig(values, nil)
	if err != nil {
		return false, err
	}
	manifests, err := platform.RenderManifests(config)
	if err != nil {
		return false, err
	}
	if o.live {
		return compareLive(ctx, config, file, manifests, out)
	}
	base, err := gitsource.Local(ctx, ".", o.base, o.folder)
	if err != nil {
		return false, err
	}
	now := gitsource.Files{}
	for _, manifest := range manifests {
		now[manifest.Path] = manifest.Content
	}
	changes, err := review.Compare(base, now)
	if err != nil {
		return false, err
	}
	return len(changes) > 0, review.Write(out, o.stack, o.base, changes)
}

// compareLive applies each unit in a dry run, as its owner would.
func compareLive(
	ctx context.Context, config *platform.Config, file []byte, manifests []render.Manifest, out io.Writer,
) (changed bool, err error) {
	kubeconfig, kubeContext, err := platform.ClusterOf(file)
	if err != nil {
		return false, err
	}
	cluster, err := live.Connect(kubeconfig, kubeContext)
	if err != nil {
		return false, err
	}
	count := 0
	for _, unit := range config.Units() {
		var objects []map[string]any
		for _, manifest := range manifests {
			if slices.Contains(config.Folders(unit), manifest.Folder()) {
				objects = append(objects, manifest.Object)
			}
		}
		differences, err := cluster.Compare(ctx, owner(config, unit), objects)
		if err != nil {
			return false, err
		}
		for _, difference := range differences {
			fmt.Fprintln(out, difference)
		}
		count += len(differences)
	}
	fmt.Fprintf(out, "%d of %d objects would change in the cluster\n", count, len(manifests))
	return count > 0, nil
}

func owner(config *platform.Config, unit platform.Unit) live.Owner {
	switch {
	case config.Owner(unit) == platform.OwnershipPulumi:
		return live.Pulumi()
	case config.GitOps.Flavour == components.GitOpsFlux:
		return live.Flux()
	default:
		return live.ArgoCD()
	}
}
