package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// app is what all commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	server   string
	output   string
	timeout  time.Duration
	tls      leasetls.Files
	secure   bool
	token    string
	// again is closed when we are asked a second time to stop.
	again <-chan struct{}
}

func newRoot(in io.Reader, out, errOut io.Writer, again <-chan struct{}) *cobra.Command {
	a := &app{in: in, out: out, err: errOut, again: again}
	root := &cobra.Command{
		Use:   "leasectl",
		Short: "Work with leases",
		Long: "Work with leases of a Holdfast lease service.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the lease is held by somebody else; lock and elect exit with the code of their command,\n" +
			"126 if it cannot be run, 127 if it is not found; 128+n interrupted by signal n before the command ran.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != "table" && a.output != "json" {
				return &usageError{fmt.Errorf("-o is %q; table and json are allowed", a.output)}
			}
			return nil
		},
	}
	server := os.Getenv("LEASECTL_SERVER")
	if server == "" {
		server = "127.0.0.1:7400"
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", server, "host:port of the lease service (default $LEASECTL_SERVER)")
	flags.StringVarP(&a.output, "output", "o", "table", "table or json")
	flags.DurationVar(&a.timeout, "timeout", 10*time.Second, "how long a call may take that does not wait for a lease")
	flags.BoolVar(&a.secure, "tls", false, "use TLS; implied by the next three")
	flags.StringVar(&a.tls.CA, "ca", os.Getenv("LEASECTL_CA"), "authorities (PEM) of the server's certificate (default $LEASECTL_CA, else the system's)")
	flags.StringVar(&a.tls.Cert, "cert", os.Getenv("LEASECTL_CERT"), "client certificate (PEM, default $LEASECTL_CERT)")
	flags.StringVar(&a.tls.Key, "key", os.Getenv("LEASECTL_KEY"), "key (PEM) of --cert (default $LEASECTL_KEY)")
	flags.StringVar(&a.token, "token-file", os.Getenv("LEASECTL_TOKEN_FILE"), "send the bearer token in this file; needs TLS (default $LEASECTL_TOKEN_FILE)")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	root.AddCommand(a.acquire(), a.keepAlive(), a.release(), a.get(), a.list(), a.watch(), a.lock(), a.revoke(), a.status(),
		a.elect(), a.who(), a.observe(), a.transfer())
	return root
}

// args turns cobra's complaint about the number of arguments into a usage error.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := check(cmd, given); err != nil {
			return &usageError{fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
		}
		return nil
	}
}

type clients struct {
	conn   *grpc.ClientConn
	lease  leasev1.LeaseServiceClient
	status leasestatus.LeaseStatusServiceClient
	client *lease.Client
}

// connect makes clients; it does not reach out to the server yet.
func (a *app) connect() (*clients, error) {
	creds := insecure.NewCredentials()
	if a.secure || a.tls != (leasetls.Files{}) {
		if err := a.tls.Validate(); err != nil {
			return nil, &usageError{fmt.Errorf("--ca, --cert, --key: %w", err)}
		}
		creds = leasetls.ClientCredentials(a.tls)
	}
	options := append(lease.DialOptions(), grpc.WithTransportCredentials(creds))
	if a.token != "" {
		options = append(options, grpc.WithPerRPCCredentials(leasetls.TokenFile(a.token)))
	}
	conn, err := grpc.NewClient(a.server, options...)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--server is %q: %w", a.server, err)}
	}
	return &clients{
		conn: conn, lease: leasev1.NewLeaseServiceClient(conn), status: leasestatus.NewLeaseStatusServiceClient(conn), client: lease.New(conn),
	}, nil
}

// call runs a function with clients and the time limit of short calls.
func (a *app) call(ctx context.Context, do func(context.Context, *clients) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.stream(ctx, do)
}

// stream is call without a time limit.
func (a *app) stream(ctx context.Context, do func(context.Context, *clients) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.conn.Close()
	return do(ctx, c)
}

// wanted are the flags that say what to acquire.
type wanted struct {
	ttl      time.Duration
	holder   string
	shared   bool
	permits  string
	metadata []string
	try      bool
	wait     time.Duration
}

func (w *wanted) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&w.ttl, "ttl", 0, "how long the lease lives without a renewal (default the server's)")
	flags.StringVar(&w.holder, "holder", defaultHolder(), "name that others are shown")
	flags.BoolVar(&w.shared, "shared", false, "share the lease with others who do")
	flags.StringVar(&w.permits, "permits", "", "take n of m permits: n/m")
	flags.StringArrayVar(&w.metadata, "metadata", nil, "show key=value along with the holder; may be repeated")
	cmd.MarkFlagsMutuallyExclusive("shared", "permits")
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

func (w *wanted) options() ([]lease.Option, error) {
	options := []lease.Option{lease.WithHolder(w.holder)}
	if w.ttl != 0 {
		options = append(options, lease.WithTTL(w.ttl))
	}
	if w.shared {
		options = append(options, lease.Shared())
	}
	if w.permits != "" {
		var n, total int32
		if _, err := fmt.Sscanf(w.permits+"\n", "%d/%d\n", &n, &total); err != nil {
			return nil, &usageError{fmt.Errorf("--permits is %q; it must be n/m, for example 1/5", w.permits)}
		}
		options = append(options, lease.Permits(n, total))
	}
	if len(w.metadata) > 0 {
		metadata := map[string]string{}
		for _, pair := range w.metadata {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" {
				return nil, &usageError{fmt.Errorf("--metadata is %q; it must be key=value", pair)}
			}
			metadata[key] = value
		}
		options = append(options, lease.WithMetadata(metadata))
	}
	return options, nil
}
