package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/test/cluster"
)

// flags are those that all commands share.
type flags struct {
	name, stateDir, binDir string
}

func (f *flags) open() (*cluster.Cluster, error) { return cluster.Open(f.stateDir, f.name) }

// withCluster makes a command's body of what it does with the cluster.
func (f *flags) withCluster(do func(ctx context.Context, c *cluster.Cluster, args []string, out io.Writer) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := f.open()
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, args, cmd.OutOrStdout())
	}
}

func (f *flags) up() *cobra.Command {
	var o cluster.Options
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "up", Short: "Start the cluster, or what of it does not run", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.StateDir, o.Name, o.BinDir, o.Progress = f.stateDir, f.name, f.binDir, cmd.OutOrStdout()
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			_, err := cluster.Up(ctx, o)
			return err
		},
	}
	cmd.Flags().IntVar(&o.Nodes, "nodes", 0, "number of nodes (default 1, or as many as there are)")
	cmd.Flags().BoolVar(&o.FastNodeFailure, "fast-node-failure", false, "notice a dead node after 8 s and replace its pods 4 s later")
	cmd.Flags().StringVar(&o.NetworkPolicy, "network-policy", "", "enforce NetworkPolicies with this kube-network-policies program")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Minute, "give up after this time")
	return cmd
}

func (f *flags) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the cluster and remove all of it, its data too", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.open()
			if errors.Is(err, cluster.ErrNoCluster) {
				fmt.Fprintf(cmd.OutOrStdout(), "there is no cluster %s\n", f.name)
				return nil
			}
			if err != nil {
				return err
			}
			return c.Down(cmd.Context())
		},
	}
}

func (f *flags) status() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show every part of the cluster; exit code 1 when one is not healthy", Args: cobra.NoArgs,
		RunE: f.withCluster(func(ctx context.Context, c *cluster.Cluster, _ []string, out io.Writer) error {
			s := c.Status(ctx)
			if err := s.Print(out); err != nil {
				return err
			}
			if !s.Healthy() {
				return quietError{errors.New("the cluster is not healthy")}
			}
			return nil
		}),
	}
}

func (f *flags) loadImage() *cobra.Command {
	return &cobra.Command{
		Use: "load-image TAR...", Short: "Give image archives to every node, now and later", Args: cobra.MinimumNArgs(1),
		RunE: f.withCluster(func(ctx context.Context, c *cluster.Cluster, args []string, _ io.Writer) error {
			return c.LoadImages(ctx, args...)
		}),
	}
}

func (f *flags) logs() *cobra.Command {
	return &cobra.Command{
		Use: "logs [COMPONENT]", Short: "List the components' logs, or print one", Args: cobra.MaximumNArgs(1),
		Example: "cluster logs kube-apiserver\ncluster logs node1/kubelet",
		RunE: f.withCluster(func(_ context.Context, c *cluster.Cluster, args []string, out io.Writer) error {
			logs, err := c.Logs()
			if err != nil {
				return err
			}
			var names []string
			for name := range logs {
				names = append(names, name)
			}
			slices.Sort(names)
			if len(args) == 0 {
				for _, name := range names {
					fmt.Fprintf(out, "%-26s %s\n", name, logs[name])
				}
				return nil
			}
			path, ok := logs[args[0]]
			if !ok {
				return fmt.Errorf("component %q: there are logs of %s", args[0], strings.Join(names, ", "))
			}
			log, err := os.Open(path)
			if err != nil {
				return err
			}
			defer log.Close()
			_, err = io.Copy(out, log)
			return err
		}),
	}
}

func (f *flags) partition() *cobra.Command {
	var heal bool
	cmd := &cobra.Command{
		Use: "partition NODE", Short: "Cut a node off from the network, or join it again with --heal", Args: cobra.ExactArgs(1),
		RunE: f.withCluster(func(ctx context.Context, c *cluster.Cluster, args []string, _ io.Writer) error {
			if heal {
				return c.Heal(ctx, args[0])
			}
			return c.Partition(ctx, args[0])
		}),
	}
	cmd.Flags().BoolVar(&heal, "heal", false, "end the partition")
	return cmd
}

func (f *flags) kubeconfig() *cobra.Command {
	return &cobra.Command{
		Use: "kubeconfig", Short: "Print the path of the cluster's kubeconfig", Args: cobra.NoArgs,
		RunE: f.withCluster(func(_ context.Context, c *cluster.Cluster, _ []string, out io.Writer) error {
			_, err := fmt.Fprintln(out, c.Kubeconfig())
			return err
		}),
	}
}

func (f *flags) forward() *cobra.Command {
	return &cobra.Command{
		Use: "forward HOST:PORT", Short: "Make an address or a name of the cluster reachable on 127.0.0.1 and print where", Args: cobra.ExactArgs(1),
		Example: "cluster forward tenant-a-client.team-a.svc:7400",
		RunE: f.withCluster(func(ctx context.Context, c *cluster.Cluster, args []string, out io.Writer) error {
			address, err := c.Forward(ctx, args[0])
			if err == nil {
				_, err = fmt.Fprintln(out, address)
			}
			return err
		}),
	}
}

func (f *flags) nodeExec() *cobra.Command {
	return &cobra.Command{
		Use: "node-exec NODE COMMAND...", Short: "Run a command inside a node, or inside control-plane", Args: cobra.MinimumNArgs(2),
		Example: "cluster node-exec node1 -- ctr -n k8s.io images ls",
		RunE: f.withCluster(func(ctx context.Context, c *cluster.Cluster, args []string, _ io.Writer) error {
			return c.Exec(ctx, args[0], args[1:]...)
		}),
	}
}

// machineInit, machineStart, openVolumes and forwarder are what `up` and `forward` start; they are of no use to
// people.
func machineInit() *cobra.Command {
	return &cobra.Command{
		Use: "machine-init", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return cluster.RunInit(os.Stdin, os.Stdout) },
	}
}

func machineStart() *cobra.Command {
	return &cobra.Command{
		Use: "machine-start", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return cluster.RunStart(os.Stdin, os.Stdout) },
	}
}

func openVolumes() *cobra.Command {
	return &cobra.Command{
		Use: "open-volumes FOLDER", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return cluster.OpenVolumes(cmd.Context(), args[0]) },
	}
}

func (f *flags) forwarder() *cobra.Command {
	return &cobra.Command{
		Use: "forwarder TARGET", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: f.withCluster(func(ctx context.Context, c *cluster.Cluster, args []string, _ io.Writer) error {
			return c.ServeForward(ctx, os.Stdin, args[0])
		}),
	}
}
