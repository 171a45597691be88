// Package service puts the lease service together: store, engine, gRPC server and metrics in one process,
// from start to orderly stop.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/embedded"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/server"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// The widest limits of single requests, which are also the default ones.
const (
	MinTTL        = time.Second
	MaxTTL        = 24 * time.Hour
	MaxValueBytes = server.MaxValue
)

const (
	// minSessionTTL is the least etcd grants with its default election timeout.
	minSessionTTL = 2 * time.Second
	stopTimeout   = 5 * time.Second
	// heapFloor is what the garbage collector takes for granted. Few leases make a small heap, which would otherwise be collected
	// many times a second under load.
	heapFloor = 32 << 20
)

// Options are the flags of the binary.
type Options struct {
	// Listen and MetricsListen are host:port; with an empty MetricsListen there are no metrics.
	Listen, MetricsListen string
	// HealthListen is a host:port for the gRPC health service alone, without TLS, for probes that can show no
	// certificate; empty: none.
	HealthListen string
	// PprofListen is a host:port, best on a loopback address, to serve Go's profiles on; empty: none.
	PprofListen string
	// Name and Advertise are how others know this replica. Empty: the address it listens on.
	Name, Advertise string
	// TLS secures the gRPC server and the connections between replicas; the zero value does not. With a CA, clients
	// need a certificate of it.
	TLS leasetls.Files
	// EtcdTLS secures the connections to etcd; its certificate and key may name files that are not there, for an etcd
	// that asks for none.
	EtcdTLS leasetls.Files
	// EtcdUser, or the user in EtcdUserFile, logs in there, with the password in EtcdPasswordFile.
	EtcdUser, EtcdUserFile, EtcdPasswordFile string
	// EtcdEndpoints are URLs; none means an embedded etcd with its data in DataDir.
	EtcdEndpoints []string
	EtcdPrefix    string
	DataDir       string
	// AccessOptions say who may call.
	AccessOptions

	// LeaseTTL is the TTL of requests that name none.
	LeaseTTL time.Duration
	// SessionTTL is how soon other replicas take over from one that died.
	SessionTTL time.Duration
	// DrainTimeout bounds an orderly stop.
	DrainTimeout time.Duration
	Shards       int
	// JournalChanges is how much a replica writes to its journal before it settles it; see package store.
	JournalChanges int
	Limits         engine.Limits
	// MinTTL and MaxTTL bound the TTLs of leases, in whole seconds, and MaxValueBytes the values that holders attach. 0: 1 s, 24 h and 64 KiB, which
	// are also the widest bounds there are.
	MinTTL, MaxTTL time.Duration
	MaxValueBytes  int
	Version        string
	// Log receives JSON.
	Log      io.Writer
	LogLevel slog.Level
	// Started, if set, is called with the address served on, once it accepts calls.
	Started func(address string)
}

// Validate says what is wrong with the options, each by its flag.
func (o *Options) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(o.Listen != "", "--listen is empty; host:port is required")
	require(o.EtcdPrefix != "" && o.EtcdPrefix[len(o.EtcdPrefix)-1] == '/', "--etcd-prefix is %q; it must end in '/'", o.EtcdPrefix)
	low, high := o.ttls()
	require(low >= MinTTL && low <= MaxTTL && low%time.Second == 0, "--min-ttl is %s; whole seconds from %s to %s are allowed", low, MinTTL, MaxTTL)
	require(high >= low && high <= MaxTTL && high%time.Second == 0,
		"--max-ttl is %s; whole seconds from --min-ttl, which is %s, to %s are allowed", high, low, MaxTTL)
	require(o.LeaseTTL >= low && o.LeaseTTL <= high, "--lease-ttl is %s; %s to %s are allowed", o.LeaseTTL, low, high)
	require(o.MaxValueBytes >= 0 && o.MaxValueBytes <= MaxValueBytes, "--max-value-bytes is %d; 1 to %d are allowed (0 stands for that)", o.MaxValueBytes, MaxValueBytes)
	require(o.SessionTTL >= minSessionTTL, "--session-ttl is %s; at least %s is needed", o.SessionTTL, minSessionTTL)
	require(o.DrainTimeout > 0, "--drain-timeout is %s; it must be positive", o.DrainTimeout)
	require(o.Shards >= 1 && o.Shards <= store.MaxShards, "--shards is %d; 1 to %d are allowed", o.Shards, store.MaxShards)
	require(o.JournalChanges >= 1, "--journal-changes is %d; it must be positive", o.JournalChanges)
	require(len(o.EtcdEndpoints) > 0 || o.DataDir != "", "--data-dir is empty; the embedded etcd needs one (or name --etcd-endpoints)")
	require(o.TLS.CA == "" || o.TLS.Cert != "", "--tls-client-ca needs --tls-cert and --tls-key")
	require(o.EtcdUser == "" || o.EtcdUserFile == "", "--etcd-user and --etcd-user-file exclude each other")
	require((o.EtcdUser+o.EtcdUserFile == "") == (o.EtcdPasswordFile == ""), "--etcd-user or --etcd-user-file, and --etcd-password-file need each other")
	for flags, files := range map[string]leasetls.Files{
		"--tls-cert, --tls-key, --tls-client-ca": o.TLS, "--etcd-cert, --etcd-key, --etcd-ca": o.etcdFiles(),
	} {
		if err := files.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flags, err))
		}
	}
	for _, endpoint := range o.EtcdEndpoints {
		if err := validateEndpoint(endpoint); err != nil {
			errs = append(errs, err)
		}
	}
	if err := o.validate(o.TLS); err != nil {
		errs = append(errs, err)
	}
	for flag, limit := range map[string]int64{
		"--max-leases": o.Limits.Leases, "--max-waiters": o.Limits.Waiters,
		"--max-waiters-per-name": o.Limits.WaitersPerName, "--max-acquires-per-second": o.Limits.Rate,
	} {
		require(limit >= 0, "%s is %d; it must not be negative (0 is no limit)", flag, limit)
	}
	return errors.Join(errs...)
}

// ttls are the bounds of TTLs.
func (o *Options) ttls() (low, high time.Duration) {
	return cmp.Or(o.MinTTL, MinTTL), cmp.Or(o.MaxTTL, MaxTTL)
}

// Run serves until the context ends, then hands over, stops and returns nil. It returns an error when it could
// not start or go on.
func Run(ctx context.Context, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	floor := make([]byte, heapFloor) // it is never touched, and so takes no memory
	defer runtime.KeepAlive(floor)
	log := slog.New(slog.NewJSONHandler(opts.Log, &slog.HandlerOptions{Level: opts.LogLevel})).With("replica", opts.Name)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", opts.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	if opts.Advertise == "" {
		opts.Advertise = reachable(listener.Addr(), len(opts.EtcdEndpoints) == 0)
	}
	if opts.Name == "" {
		opts.Name = opts.Advertise
	}
	opened, err := openStore(ctx, &opts)
	if err != nil {
		return err
	}
	defer opened.close()
	etcd, err := store.NewEtcd(opened.client, opts.EtcdPrefix)
	if err != nil {
		return err
	}
	etcd.JournalChanges = opts.JournalChanges
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	eng := engine.New(engine.Options{
		Store: etcd, Name: opts.Name, Address: opts.Advertise, Shards: opts.Shards, SessionTTL: opts.SessionTTL, Limits: opts.Limits,
		Explain: opened.explain, Clock: clock.Now, Log: log, Registry: registry,
	})
	low, high := opts.ttls()
	serverOptions := server.Options{
		Engine: eng, Store: etcd, Embedded: len(opts.EtcdEndpoints) == 0, Name: opts.Name, Version: opts.Version,
		TTLs: server.TTLs{Min: low, Max: high, Default: opts.LeaseTTL}, MaxValue: opts.MaxValueBytes, Patience: 2*opts.SessionTTL + 5*time.Second,
		Clock: clock.Now, Log: log, Registry: registry, Access: opts.access(),
	}
	if opts.TLS.Cert != "" {
		serverOptions.ServerOptions = []grpc.ServerOption{grpc.Creds(opts.credentials(opts.TLS))}
		serverOptions.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(leasetls.ClientCredentials(opts.TLS))}
		serverOptions.Identity = func() string {
			identity, err := opts.TLS.OwnIdentity()
			if err != nil {
				log.Error("the own certificate cannot be read", "error", err)
			}
			return identity
		}
	}
	srv := server.New(serverOptions)
	serving := log.With("address", listener.Addr().String(), "advertise", opts.Advertise, "version", opts.Version)
	if len(opts.EtcdEndpoints) == 0 {
		serving.Info("serving", "embeddedEtcd", true, "dataDir", opts.DataDir)
	} else {
		serving.Info("serving", "embeddedEtcd", false, "etcdEndpoints", opts.EtcdEndpoints)
	}
	p := &process{opts: opts, log: log, engine: eng, server: srv, registry: registry}
	return p.run(ctx, listener, opened.failed)
}

// reachable guesses how others reach a listener: one on all addresses by the host's name, or when this is the
// only replica, by the loopback address.
func reachable(addr net.Addr, alone bool) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	host, err := os.Hostname()
	if alone || err != nil {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(tcp.Port))
}

type openedStore struct {
	client *clientv3.Client
	// failed yields an error when the embedded etcd dies.
	failed <-chan error
	// explain is nil with the embedded etcd.
	explain func(error) error
	close   func()
}

// openStore connects to etcd, or starts the embedded one.
func openStore(ctx context.Context, opts *Options) (*openedStore, error) {
	if len(opts.EtcdEndpoints) > 0 {
		client, reach, err := dialEtcd(opts)
		if err != nil {
			return nil, err
		}
		return &openedStore{client: client, explain: reach.explain, close: func() {
			_ = client.Close() // nothing is lost by a close that fails
		}}, nil
	}
	etcd, err := embedded.Start(ctx, embedded.Options{Dir: opts.DataDir})
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	client := etcd.Client()
	return &openedStore{client: client, failed: etcd.Failed(), close: func() {
		_ = client.Close() // as above
		etcd.Close()
	}}, nil
}

type process struct {
	opts     Options
	log      *slog.Logger
	engine   *engine.Engine
	server   *server.Server
	registry *prometheus.Registry
}

func (p *process) run(ctx context.Context, listener net.Listener, storeFailed <-chan error) error {
	// The parts outlive ctx until the shards are handed over.
	parts, stopParts := context.WithCancel(context.WithoutCancel(ctx))
	defer stopParts()
	group, parts := errgroup.WithContext(parts)
	engineCtx, stopEngine := context.WithCancel(parts)
	defer stopEngine()
	group.Go(func() error { return p.engine.Run(engineCtx) })
	group.Go(func() error { return p.server.Serve(listener) })
	group.Go(func() error { return p.serveMetrics(parts) })
	group.Go(func() error { return p.serveHealth(parts) })
	group.Go(func() error { return p.servePprof(parts) })
	if p.opts.Started != nil {
		p.opts.Started(listener.Addr().String())
	}
	var cause error
	select {
	case <-ctx.Done():
	case <-parts.Done():
	case err := <-storeFailed:
		cause = fmt.Errorf("the embedded etcd failed: %w", err)
	}
	p.drain(parts, cause == nil)
	stopEngine()
	stopParts()
	err := group.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(cause, err)
}

// drain hands the shards over, then stops the server, within the drain timeout in all.
func (p *process) drain(ctx context.Context, handOver bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opts.DrainTimeout)
	defer cancel()
	if handOver {
		if err := p.engine.Drain(ctx); err != nil {
			p.log.Warn("stopping with shards that were not handed over", "error", err)
		}
	}
	stop, cancelStop := context.WithTimeout(ctx, min(stopTimeout, p.opts.DrainTimeout/2))
	defer cancelStop()
	p.server.Stop(stop)
	p.log.Info("stopped")
}

// serveHealth answers probes on an address of its own until the context ends.
func (p *process) serveHealth(ctx context.Context) error {
	if p.opts.HealthListen == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.opts.HealthListen)
	if err != nil {
		return fmt.Errorf("--health-listen: %w", err)
	}
	srv := grpc.NewServer()
	p.server.RegisterHealth(srv)
	stop := context.AfterFunc(ctx, srv.Stop)
	defer stop()
	if err := srv.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("--health-listen: %w", err)
	}
	return nil
}

func (p *process) serveMetrics(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{Registry: p.registry}))
	return serveHTTP(ctx, "--metrics-listen", p.opts.MetricsListen, mux)
}

func (p *process) servePprof(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return serveHTTP(ctx, "--pprof-listen", p.opts.PprofListen, mux)
}

// serveHTTP serves on the address of a flag until the context ends; an empty one is not served.
func serveHTTP(ctx context.Context, flag, address string, handler http.Handler) error {
	if address == "" {
		return nil
	}
	srv := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // an answer that is cut off is asked for again
	defer stop()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
