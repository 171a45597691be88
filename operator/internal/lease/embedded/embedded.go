// Package embedded runs one etcd server inside the process: the store of a lease service that was given no
// etcd endpoints.
package embedded

import (
	"context"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// startTimeout bounds how long a server may take until it is ready.
const startTimeout = 30 * time.Second

// Options configure a server.
type Options struct {
	// Dir is where it keeps its data. Required.
	Dir string
	// ListenClient is a URL to serve etcd clients on, of scheme http on a loopback address, or unix. Empty:
	// it serves none but Client.
	ListenClient string
	// LogLevel is etcd's own. Empty: error.
	LogLevel string
	// TickMillis is the heartbeat interval; elections take ten of them. 0: etcd's default of 100.
	TickMillis uint
	// QuotaBytes is how large its data may become. 0: etcd's default of 2 GiB.
	QuotaBytes int64
}

// Server is a running etcd.
type Server struct {
	etcd *embed.Etcd
}

// Start starts a server and returns once it is ready.
func Start(ctx context.Context, opts Options) (*Server, error) {
	cfg := embed.NewConfig()
	cfg.Name = "lease-service"
	cfg.Dir = opts.Dir
	cfg.LogLevel = "error"
	if opts.LogLevel != "" {
		cfg.LogLevel = opts.LogLevel
	}
	// Nobody resumes a watch from much more than an hour ago, and then a snapshot does.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "1h"
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenPeerUrls, cfg.ListenClientUrls, cfg.AdvertiseClientUrls = nil, nil, nil
	cfg.QuotaBackendBytes = opts.QuotaBytes
	if opts.TickMillis > 0 {
		cfg.TickMs, cfg.ElectionMs = opts.TickMillis, 10*opts.TickMillis
	}
	if opts.ListenClient != "" {
		u, err := url.Parse(opts.ListenClient)
		if err != nil {
			return nil, fmt.Errorf("etcd client URL %q: %w", opts.ListenClient, err)
		}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*u}, []url.URL{*u}
	}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start the embedded etcd in %q: %w", opts.Dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-etcd.Server.ReadyNotify():
		return &Server{etcd: etcd}, nil
	case err := <-etcd.Err():
		etcd.Close()
		return nil, fmt.Errorf("start the embedded etcd in %q: %w", opts.Dir, err)
	case <-ctx.Done():
		etcd.Close()
		return nil, fmt.Errorf("the embedded etcd in %q is not ready: %w", opts.Dir, ctx.Err())
	}
}

// Client returns a client that calls the server without a socket. Close it before the server.
func (s *Server) Client() *clientv3.Client { return v3client.New(s.etcd.Server) }

// Endpoint returns the address that Options.ListenClient got, port included; empty if there is none.
func (s *Server) Endpoint() string {
	if len(s.etcd.Clients) == 0 {
		return ""
	}
	addr := s.etcd.Clients[0].Addr()
	if addr.Network() == "unix" {
		return "unix://" + addr.String()
	}
	return addr.String()
}

// Failed yields an error when the server stops by itself.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Close stops the server.
func (s *Server) Close() { s.etcd.Close() }
