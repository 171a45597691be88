// The holdfast-zk binary brings znodes that are edited by hand under declarations: it writes a manifest for each znode
// of a subtree. It only reads.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/operator/internal/buildinfo"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// authVariable is the environment variable with the credential: a flag would show it in the list of processes.
const authVariable = "ZK_AUTH"

// version is set by the linker: -X main.version=...
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newRoot(os.Stdout, os.Stderr, os.Getenv(authVariable)).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast-zk:", err)
		os.Exit(1)
	}
}

func newRoot(stdout, stderr io.Writer, auth string) *cobra.Command {
	root := &cobra.Command{
		Use: "holdfast-zk", Short: "Bring hand-edited znodes under declarations", Version: buildinfo.Version(version),
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(newExport(stdout, stderr, auth))
	return root
}

// options of an export.
type options struct {
	connect   string
	root      string
	namespace string
	empty     bool
	secrets   []string
	timeout   time.Duration
	auth      string
}

func newExport(stdout, stderr io.Writer, auth string) *cobra.Command {
	o := options{auth: auth}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a ZooKeeperConfig for each znode of a subtree",
		Long: "Write a ZooKeeperConfig for each znode of a subtree to standard output. Nothing is written to ZooKeeper.\n" +
			"The credential for ZooKeeper's digest scheme is taken from the environment: " + authVariable + "=user:password.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return export(cmd.Context(), o, stdout, stderr) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.connect, "connect", "", "connect string of the ensemble, with an optional chroot (required)")
	flags.StringVar(&o.root, "root", "/", "znode to begin with; it is exported too")
	flags.StringVar(&o.namespace, "namespace", "", "namespace of the manifests; none if left out")
	flags.BoolVar(&o.empty, "empty", false, "also export znodes that are empty and have children")
	flags.StringArrayVar(&o.secrets, "secret", nil, "pattern of paths (*, ?, [..] within a part) whose data goes to a Secret of yours instead of the manifest")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "time for the whole export")
	if err := cmd.MarkFlagRequired("connect"); err != nil {
		panic(err) // the flag is defined just above
	}
	return cmd
}

func (o options) target() (zookeeper.Target, error) {
	connect, err := zktypes.ParseConnectString(o.connect)
	if err != nil {
		return zookeeper.Target{}, fmt.Errorf("--connect: %w", err)
	}
	out := zookeeper.Target{Connect: connect}
	if o.auth != "" {
		user, password, found := strings.Cut(o.auth, ":")
		if !found || user == "" || password == "" {
			return zookeeper.Target{}, errors.New(authVariable + " is not user:password")
		}
		out.Credential = zookeeper.Credential{User: user, Password: password}
	}
	return out, nil
}

func (o options) validate() error {
	if o.root != "/" {
		if err := zktypes.ValidatePath(o.root); err != nil {
			return fmt.Errorf("--root: %w", err)
		}
	}
	for _, pattern := range o.secrets {
		if _, err := path.Match(pattern, "/"); err != nil {
			return fmt.Errorf("--secret %q: %w", pattern, err)
		}
	}
	return nil
}

func export(ctx context.Context, o options, stdout, stderr io.Writer) error {
	target, err := o.target()
	if err != nil {
		return err
	}
	if err := o.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	pool := zookeeper.New(zookeeper.Options{AuditInterval: -1})
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = pool.Close(closing) // everything has been read
	}()
	session, err := pool.Session(target)
	if err != nil {
		return err
	}
	w := &walker{options: o, session: session, out: stdout, log: stderr}
	if err := w.walk(ctx, o.root); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%d znodes exported, %d left out\n", w.written, w.skipped)
	return nil
}
