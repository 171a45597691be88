// Package server is the gRPC face of the lease service: it checks requests, takes them to the replica that
// serves the name, and turns results and errors into the public API.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/engine"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/operator/lease/leasewire"
)

// healthEvery is how often readiness is looked at besides when something changes: certainty also passes
// by itself.
const healthEvery = 100 * time.Millisecond

// streamWorkers is how many goroutines serve one call after another. A goroutine made for a call begins with a small stack, and copies it
// until it is large enough, which takes a third of the processor time of the call. Sessions and watches keep
// theirs; what finds none free gets one made.
const streamWorkers = 256

// Options configure a Server.
type Options struct {
	Engine *engine.Engine
	Store  store.Store
	// Embedded says that the store runs in this process; it is only shown.
	Embedded bool
	Name     string
	Version  string
	TTLs     TTLs
	// MaxValue is how many bytes a value may have; 0 stands for 64 KiB, which is also the most.
	MaxValue int
	// Patience is how long a call waits for a name that nobody serves.
	Patience time.Duration
	Clock    func() core.Instant
	Log      *slog.Logger
	Registry prometheus.Registerer
	// Identity is this service's own, which its replicas share; nil without TLS.
	Identity func() string
	// Access says who may call.
	Access Access
	// ServerOptions and DialOptions are added to those of the gRPC server and of the connections to other
	// replicas. Without DialOptions those connections are not encrypted.
	ServerOptions []grpc.ServerOption
	DialOptions   []grpc.DialOption
}

// Server serves the lease API. Make it with New.
type Server struct {
	leasev1.UnimplementedLeaseServiceServer
	leasestatus.UnimplementedLeaseStatusServiceServer

	opts   Options
	engine *engine.Engine
	peers  *peers
	// elsewhere tells sessions of holds that other replicas serve.
	elsewhere *elsewhereHolds
	metrics   *metrics
	refused   refusals
	grpc      *grpc.Server
	health    *health.Server
	started   core.Instant
	// stopping is closed when streams shall end.
	stopping chan struct{}
	stop     sync.Once
}

type metrics struct {
	forwarded prometheus.Counter
	sessions  prometheus.Gauge
	open      atomic.Int64
}

// session counts an opened or closed session.
func (m *metrics) session(change int64) {
	m.open.Add(change)
	m.sessions.Add(float64(change))
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		forwarded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_lease_forwarded_total", Help: "Calls passed on to the replica that serves the name.",
		}),
		sessions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_lease_sessions", Help: "Session streams open at this replica.",
		}),
	}
	registry.MustRegister(m.forwarded, m.sessions)
	return m
}

// New makes a server; Serve starts it.
func New(opts Options) *Server {
	rpc := grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram(
		grpcprom.WithHistogramBuckets(prometheus.ExponentialBuckets(0.0005, 2, 14))))
	opts.Registry.MustRegister(rpc)
	s := &Server{
		opts: opts, engine: opts.Engine, metrics: newMetrics(opts.Registry), health: health.NewServer(), started: opts.Clock(),
		stopping: make(chan struct{}),
	}
	s.elsewhere = &elsewhereHolds{server: s, holds: map[holdKey]map[*sessionStream]struct{}{}}
	serverOptions := append(leasewire.ServerOptions(),
		grpc.ChainUnaryInterceptor(rpc.UnaryServerInterceptor(), addressedUnary(opts.Engine), s.authenticateUnary),
		grpc.ChainStreamInterceptor(rpc.StreamServerInterceptor(), addressedStream(opts.Engine), s.authenticateStream),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(1<<20),
		grpc.NumStreamWorkers(streamWorkers),
	)
	serverOptions = append(serverOptions, opts.ServerOptions...)
	dialOptions := opts.DialOptions
	if len(dialOptions) == 0 {
		dialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	s.peers, s.grpc = newPeers(dialOptions), grpc.NewServer(serverOptions...)
	leasev1.RegisterLeaseServiceServer(s.grpc, s)
	leasev1.RegisterElectionServiceServer(s.grpc, &elections{server: s})
	leasestatus.RegisterLeaseStatusServiceServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	rpc.InitializeMetrics(s.grpc)
	s.health.SetServingStatus(leasev1.LeaseService_ServiceDesc.ServiceName, healthpb.HealthCheckResponse_NOT_SERVING)
	return s
}

// RegisterHealth adds the health service, and no other, to another gRPC server.
func (s *Server) RegisterHealth(registrar grpc.ServiceRegistrar) {
	healthpb.RegisterHealthServer(registrar, s.health)
}

// Serve serves on a listener until Stop. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	done := make(chan struct{})
	defer close(done)
	go s.watchHealth(done)
	if err := s.grpc.Serve(listener); err != nil {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// watchHealth keeps the readiness and the connections to the other replicas current.
func (s *Server) watchHealth(done <-chan struct{}) {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		changed := s.engine.Changed()
		status := s.engine.Status()
		serving := healthpb.HealthCheckResponse_NOT_SERVING
		if status.Certain && !status.Draining {
			serving = healthpb.HealthCheckResponse_SERVING
		}
		s.health.SetServingStatus(leasev1.LeaseService_ServiceDesc.ServiceName, serving)
		if cluster := s.engine.Cluster(); cluster != nil {
			addresses := map[string]bool{}
			for _, m := range cluster.Members {
				addresses[m.Address] = true
			}
			s.peers.keep(addresses)
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-done:
			return
		}
	}
}

// Stop ends the streams, lets calls under way end, and cuts what is left when the context ends.
func (s *Server) Stop(ctx context.Context) {
	s.stop.Do(func() { close(s.stopping) })
	s.health.Shutdown()
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.grpc.Stop()
		<-stopped
	}
	s.elsewhere.end()
	s.peers.keep(nil)
}

// streamContext is a stream's context that also ends when the server stops.
func (s *Server) streamContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.endingContext(ctx, nil)
}

// servingContext is streamContext for streams that a replica which is cut off from the store must not keep: their clients would not go to one
// that can serve them.
func (s *Server) servingContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.endingContext(ctx, s.engine.CutOff())
}

func (s *Server) endingContext(ctx context.Context, cutOff <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := make(chan struct{})
	go func() {
		select {
		case <-s.stopping:
			cancel(errStopping)
		case <-cutOff:
			cancel(errCutOff)
		case <-ctx.Done():
		case <-release:
		}
	}()
	return ctx, func() {
		close(release)
		cancel(nil)
	}
}

// streamError is what a stream that was served under streamContext or servingContext ends with.
func (s *Server) streamError(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopping):
		return s.toError(errStopping)
	case errors.Is(cause, errCutOff):
		// It may be over by now, but the stream is too.
		return s.toError(cmp.Or(s.engine.CutOffError(), engine.ErrUncertain))
	}
	return s.toError(err)
}
