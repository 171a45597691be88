// The operator binary runs the kinds of the API group dist.system.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/holdfast-io/holdfast/operator/internal/buildinfo"
	"github.com/holdfast-io/holdfast/operator/internal/config"
)

// version is set by the linker: -X main.version=...
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

// command is the command line; logs go to the writer.
func command(logs io.Writer) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Run the kinds of the API group dist.system",
		Long: `Run the kinds of the API group dist.system against the API server that KUBECONFIG names, or else the one of the
cluster that this process runs in. It stops cleanly on SIGTERM and SIGINT.`,
		Args:          cobra.NoArgs,
		Version:       buildinfo.Version(version),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := config.Load(file)
			if err != nil {
				return err
			}
			log, err := logger(logs, settings.Log.Level)
			if err != nil {
				return err
			}
			// Libraries log by these, whatever manager they belong to.
			ctrl.SetLogger(log)
			klog.SetLogger(log.WithName("client-go"))
			rest, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("find the API server (KUBECONFIG, or a pod's service account): %w", err)
			}
			return run(cmd.Context(), options{config: settings, rest: rest, log: log, components: components(settings)})
		},
	}
	cmd.Flags().StringVar(&file, "config", "/etc/holdfast/operator.yaml", "the configuration: an OperatorConfig, see docs/operator.md")
	return cmd
}
