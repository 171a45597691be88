// The lease-service binary serves leases over gRPC, as one of several replicas on a shared etcd or alone on an
// embedded one.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/operator/internal/buildinfo"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/internal/lease/tokenreview"
)

// version is set by the linker: -X main.version=...
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opts := service.Options{Log: os.Stderr, Version: buildinfo.Version(version)}
	if err := newCommand(&opts).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "lease-service:", err)
		os.Exit(1)
	}
}

// newCommand is the command line; it fills the options in.
func newCommand(opts *service.Options) *cobra.Command {
	level := "info"
	tokens, audience := false, ""
	cmd := &cobra.Command{
		Use:           "lease-service",
		Short:         "Serve leases over gRPC",
		Args:          cobra.NoArgs,
		Version:       opts.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.LogLevel.UnmarshalText([]byte(level)); err != nil {
				return fmt.Errorf("--log-level is %q; debug, info, warn and error are allowed", level)
			}
			if tokens {
				config, err := tokenreview.InCluster(audience)
				if err != nil {
					return fmt.Errorf("--token-review: %w", err)
				}
				opts.TokenReview = &config
			}
			closed(cmd, opts)
			return service.Run(cmd.Context(), *opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Listen, "listen", ":7400", "serve gRPC on this address; only on "+alone+" when not given and without --etcd-endpoints and --tls-cert")
	flags.StringVar(&opts.MetricsListen, "metrics-listen", ":7401", "serve Prometheus metrics on this address, likewise; empty: none")
	flags.StringVar(&opts.HealthListen, "health-listen", "", "serve the gRPC health service alone, without TLS, on this address, for probes; empty: none")
	flags.StringVar(&opts.PprofListen, "pprof-listen", "", "serve Go's profiles on this address, which should be a loopback one; empty: none")
	flags.StringVar(&opts.Name, "name", defaultName(), "name of this replica (default $POD_NAME, else the host name)")
	flags.StringVar(&opts.Advertise, "advertise", "", "host:port where other replicas and clients reach this one (default the listen address)")
	flags.StringSliceVar(&opts.EtcdEndpoints, "etcd-endpoints", nil, "URLs of etcd; none: an embedded etcd")
	flags.StringVar(&opts.TLS.Cert, "tls-cert", "", "certificate chain (PEM) to serve with and to show to other replicas; read anew for each connection")
	flags.StringVar(&opts.TLS.Key, "tls-key", "", "key (PEM) of --tls-cert")
	flags.StringVar(&opts.TLS.CA, "tls-client-ca", "", "authorities (PEM) that client and replica certificates must come from; empty: clients need none")
	flags.BoolVar(&tokens, "token-review", false, "let clients show a Kubernetes ServiceAccount token instead of a certificate; needs --tls-client-ca, in a pod")
	flags.StringVar(&audience, "token-audience", "lease.dist.system", "audience that tokens must be issued for")
	flags.StringSliceVar(&opts.AllowedIdentities, "allowed-identities", nil,
		"who may call, by certificate or token, each exact or with a * at its end (default everybody who is authenticated)")
	flags.StringVar(&opts.EtcdTLS.Cert, "etcd-cert", "", "client certificate (PEM) for etcd")
	flags.StringVar(&opts.EtcdTLS.Key, "etcd-key", "", "key (PEM) of --etcd-cert")
	flags.StringVar(&opts.EtcdTLS.CA, "etcd-ca", "", "authorities (PEM) of etcd's certificate")
	flags.StringVar(&opts.EtcdUser, "etcd-user", "", "log in to etcd as this user")
	flags.StringVar(&opts.EtcdUserFile, "etcd-user-file", "", "file with that user, in place of --etcd-user")
	flags.StringVar(&opts.EtcdPasswordFile, "etcd-password-file", "", "file with the password of that user; read anew for each login")
	flags.StringVar(&opts.EtcdPrefix, "etcd-prefix", "/holdfast/", "keep everything under this etcd prefix, which ends in '/'")
	flags.StringVar(&opts.DataDir, "data-dir", defaultDataDir(os.Geteuid(), os.Getenv), "data of the embedded etcd")
	flags.DurationVar(&opts.LeaseTTL, "lease-ttl", time.Minute, "TTL of leases whose request names none")
	flags.DurationVar(&opts.SessionTTL, "session-ttl", 5*time.Second, "how soon other replicas take over from one that died")
	flags.DurationVar(&opts.DrainTimeout, "drain-timeout", 20*time.Second, "how long an orderly stop may take")
	flags.IntVar(&opts.JournalChanges, "journal-changes", store.MaxJournal, "how many changes the journal in etcd may have before what still holds is written to keys of its own")
	flags.IntVar(&opts.Shards, "shards", 64, "number of shards, fixed when the prefix is first used")
	flags.Int64Var(&opts.Limits.Leases, "max-leases", 0, "holds of the whole service at most; 0: no limit")
	flags.Int64Var(&opts.Limits.Waiters, "max-waiters", 0, "waiting requests of the whole service at most; 0: no limit")
	flags.Int64Var(&opts.Limits.WaitersPerName, "max-waiters-per-name", 10_000, "waiting requests of one lease at most; 0: no limit")
	flags.Int64Var(&opts.Limits.Rate, "max-acquires-per-second", 0, "acquires of the whole service at most; 0: no limit")
	flags.DurationVar(&opts.MinTTL, "min-ttl", service.MinTTL, "shortest TTL of a lease, in whole seconds; at least 1s")
	flags.DurationVar(&opts.MaxTTL, "max-ttl", service.MaxTTL, "longest TTL of a lease, in whole seconds; at most 24h")
	flags.IntVar(&opts.MaxValueBytes, "max-value-bytes", service.MaxValueBytes, "bytes of the value that a holder attaches at most; at most 65536")
	flags.StringVar(&level, "log-level", slog.LevelInfo.String(), "log from this level on: debug, info, warn, error")
	return cmd
}

// alone is where a service listens that serves this machine.
const alone = "127.0.0.1"

// closed keeps a service to this machine that has an embedded etcd and no TLS, unless a flag says otherwise: whoever reaches it may do
// everything.
func closed(cmd *cobra.Command, opts *service.Options) {
	if len(opts.EtcdEndpoints) > 0 || opts.TLS.Cert != "" {
		return
	}
	if !cmd.Flags().Changed("listen") {
		opts.Listen = alone + opts.Listen
	}
	if !cmd.Flags().Changed("metrics-listen") {
		opts.MetricsListen = alone + opts.MetricsListen
	}
}

// defaultDataDir is a folder that the user may write to, by the XDG Base Directory Specification. It is empty, and so the flag is
// required, if there is no home.
func defaultDataDir(uid int, env func(string) string) string {
	const name = "lease-service"
	if uid == 0 {
		return "/var/lib/" + name
	}
	if state := env("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, name)
	}
	if home := env("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", name)
	}
	return ""
}

func defaultName() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "lease-service"
	}
	return name
}
