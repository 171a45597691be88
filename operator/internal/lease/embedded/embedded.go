// Package embedded runs one etcd server inside the process: the store of a lease service that was given no
// etcd endpoints.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

const (
	// startTimeout bounds how long a server may take until it is ready.
	startTimeout = 30 * time.Second
	// lockTimeout is how long a process that stops may still have the data.
	lockTimeout = 2 * time.Second
)

// Options configure a server.
type Options struct {
	// Dir is where it keeps its data. Required.
	Dir string
	// ListenClient is a URL to serve etcd clients on, of scheme http on a loopback address, or unix. Empty:
	// it serves none but Client.
	ListenClient string
	// LogLevel is etcd's own. Empty: nothing until the server is ready, for what goes wrong before is the error of Start; then error.
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
	logger, level, err := newLogger(opts.LogLevel)
	if err != nil {
		return nil, err
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
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
	if err := usable(opts.Dir); err != nil {
		return nil, err
	}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start the embedded etcd in %q: %w", opts.Dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-etcd.Server.ReadyNotify():
		if opts.LogLevel == "" {
			level.SetLevel(zap.ErrorLevel)
		}
		return &Server{etcd: etcd}, nil
	case err := <-etcd.Err():
		etcd.Close()
		return nil, fmt.Errorf("start the embedded etcd in %q: %w", opts.Dir, err)
	case <-ctx.Done():
		etcd.Close()
		return nil, fmt.Errorf("the embedded etcd in %q is not ready: %w", opts.Dir, ctx.Err())
	}
}

// newLogger makes etcd's logger. Without a level it is silent: the caller sets one later.
func newLogger(level string) (*zap.Logger, zap.AtomicLevel, error) {
	config := zap.NewProductionConfig()
	config.DisableStacktrace = true
	config.Level = zap.NewAtomicLevelAt(zap.FatalLevel)
	if level != "" {
		var err error
		if config.Level, err = zap.ParseAtomicLevel(level); err != nil {
			return nil, config.Level, fmt.Errorf("etcd's log level: %w", err)
		}
	}
	logger, err := config.Build()
	if err != nil {
		return nil, config.Level, fmt.Errorf("etcd's log: %w", err)
	}
	return logger, config.Level, nil
}

// usable says in a sentence what etcd would say in many lines, or in the case of another process that has the folder, not at all:
// it would wait.
func usable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the embedded etcd: %w", err)
	}
	probe, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("write to the folder of the embedded etcd: %w", err)
	}
	_ = probe.Close() // it is empty
	if err := os.Remove(probe.Name()); err != nil {
		return fmt.Errorf("write to the folder of the embedded etcd: %w", err)
	}
	file := filepath.Join(dir, "member", "snap", "db")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%q is in use by another process", dir)
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", file, err)
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("close %q: %w", file, err)
	}
	return nil
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
