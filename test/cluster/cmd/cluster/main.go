// Command cluster runs a real Kubernetes cluster on this machine. See docs/local-cluster.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
)

// The main thread stays with the main goroutine: it must not be one of those that change their
// namespaces, since /proc shows its namespaces as the process's.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	os.Exit(exitCode(err))
}

// exitCode prints an error, unless it is that of a command run in the cluster, which has spoken
// for itself.
func exitCode(err error) int {
	var exit *exec.ExitError
	var quiet quietError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	case errors.As(err, &quiet):
		return 1
	}
	fmt.Fprintln(os.Stderr, "cluster:", err)
	return 1
}

// quietError ends the program with code 1 after all has been said.
type quietError struct{ error }

func newRoot() *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:           "cluster",
		Short:         "Run a real Kubernetes cluster on this machine, inside namespaces of its own",
		SilenceErrors: true, SilenceUsage: true,
	}
	root.PersistentFlags().StringVar(&f.name, "name", "dev", "name of the cluster")
	root.PersistentFlags().StringVar(&f.stateDir, "state-dir", "", "folder with the state of all clusters (default $HOLDFAST_STATE, else ~/.local/state/holdfast)")
	root.PersistentFlags().StringVar(&f.binDir, "bin-dir", "", "folder with the Kubernetes programs, for up (default as before, else $HOLDFAST_KUBE_BIN)")
	root.AddCommand(f.up(), f.down(), f.status(), f.loadImage(), f.logs(), f.partition(),
		f.kubeconfig(), f.forward(), f.nodeExec(), machineInit(), machineStart(), openVolumes(), f.forwarder())
	return root
}
