// Package leasetest starts real lease services on a real etcd for tests.
package leasetest

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/internal/lease/embedded"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// startTimeout bounds how long anything may take to become ready.
const startTimeout = 30 * time.Second

// Etcd starts an etcd that ends with the test, and returns it with a client that calls it in process.
func Etcd(t testing.TB) (*embedded.Server, *clientv3.Client) {
	t.Helper()
	return EtcdWith(t, embedded.Options{})
}

// EtcdWith is Etcd with options; it sets those that every test needs.
func EtcdWith(t testing.TB, opts embedded.Options) (*embedded.Server, *clientv3.Client) {
	t.Helper()
	opts.Dir, opts.ListenClient, opts.TickMillis, opts.LogLevel = t.TempDir(), "http://127.0.0.1:0", 20, "fatal"
	etcd, err := embedded.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	client := etcd.Client()
	t.Cleanup(func() {
		_ = client.Close()
		etcd.Close()
	})
	return etcd, client
}

// Client connects to an etcd over its socket, until the test ends.
func Client(t testing.TB, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Options are service options that suit tests: short times, a free port, no metrics, a journal that is soon settled, logs to stderr
// from warnings on.
func Options(name string) service.Options {
	return service.Options{
		Listen: "127.0.0.1:0", Name: name, EtcdPrefix: "/test/", LeaseTTL: time.Minute, SessionTTL: 2 * time.Second,
		DrainTimeout: 10 * time.Second, Shards: 16, JournalChanges: 50, Log: os.Stderr, LogLevel: slog.LevelError, Version: "test",
	}
}

// Replica is a service that runs in the test's process.
type Replica struct {
	Address string
	stop    context.CancelFunc
	done    chan error
}

// Start starts a service and waits until it serves. It is stopped when the test ends.
func Start(t testing.TB, opts service.Options) *Replica {
	t.Helper()
	if len(opts.EtcdEndpoints) == 0 && opts.DataDir == "" {
		opts.DataDir = t.TempDir()
	}
	address := make(chan string, 1)
	opts.Started = func(a string) { address <- a }
	ctx, stop := context.WithCancel(context.Background())
	r := &Replica{stop: stop, done: make(chan error, 1)}
	go func() {
		r.done <- service.Run(ctx, opts)
		close(r.done)
	}()
	t.Cleanup(func() { r.Stop(t) })
	select {
	case r.Address = <-address:
	case err := <-r.done:
		t.Fatal("the service ended: ", err)
	case <-time.After(startTimeout):
		t.Fatal("the service does not start")
	}
	creds := insecure.NewCredentials()
	if opts.TLS.Cert != "" {
		creds = leasetls.ClientCredentials(opts.TLS)
	}
	awaitStatus(t, DialWith(t, r.Address, creds), "all shards are served", allServed)
	return r
}

// Stop stops the service in an orderly way, and fails the test if that does not work. It may be called
// again.
func (r *Replica) Stop(t testing.TB) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			t.Error("the service ended: ", err)
		}
	case <-time.After(startTimeout):
		t.Error("the service does not stop")
	}
}

// Dial connects to a service until the test ends.
func Dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	return DialWith(t, address, insecure.NewCredentials())
}

// DialWith connects to a service with credentials until the test ends.
func DialWith(t testing.TB, address string, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// allServed says that a service serves and all shards have an owner.
func allServed(s *leasestatus.GetStatusResponse) bool {
	var served int32
	for _, r := range s.GetReplicas() {
		served += r.GetShards()
	}
	return s.GetReady() && s.GetLeader() != "" && served == s.GetShardsTotal()
}

// AwaitStatus follows a service's status until a condition holds.
func AwaitStatus(t testing.TB, address, what string, ok func(*leasestatus.GetStatusResponse) bool) *leasestatus.GetStatusResponse {
	t.Helper()
	return awaitStatus(t, Dial(t, address), what, ok)
}

func awaitStatus(t testing.TB, conn *grpc.ClientConn, what string, ok func(*leasestatus.GetStatusResponse) bool) *leasestatus.GetStatusResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	stream, err := leasestatus.NewLeaseStatusServiceClient(conn).WatchStatus(ctx, &leasestatus.WatchStatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	var last *leasestatus.GetStatusResponse
	for {
		update, err := stream.Recv()
		if err != nil {
			t.Fatalf("waiting until %s: %v; the last status was %v", what, err, last)
		}
		if last = update.GetStatus(); ok(last) {
			return last
		}
	}
}
