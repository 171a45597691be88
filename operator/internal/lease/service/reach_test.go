package service_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
)

func TestEtcdEndpointsAreValidated(t *testing.T) {
	for _, endpoint := range []string{"http://etcd:2379", "https://etcd.team-a.svc:2379/", "10.0.0.1:2379", "http://[::1]:2379"} {
		opts := leasetest.Options("a")
		opts.EtcdEndpoints = []string{endpoint}
		assert.NoError(t, opts.Validate())
	}
	for endpoint, why := range map[string]string{
		"":                      "there is no host",
		"etcd":                  "there is no port",
		"http://etcd":           "there is no port",
		"http://etcd:0":         "there is no port",
		"http://etcd:99999":     "there is no port",
		"http://etcd:port":      "invalid port",
		"ftp://etcd:2379":       "the scheme is ftp",
		"http//etcd:2379":       "there is no port",
		"http://etcd:2379/v3":   "more than a host and a port",
		"http://me:x@etcd:2379": "more than a host and a port",
		"http://:2379":          "there is no host",
	} {
		opts := leasetest.Options("a")
		opts.EtcdEndpoints = []string{"http://fine:2379", endpoint}
		err := opts.Validate()
		require.ErrorContains(t, err, "--etcd-endpoints has \""+endpoint+"\": ")
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, "http://host:port")
	}
}

// A replica that cannot reach etcd says which etcd, and why, in its log and in its status.
func TestAnUnreachableEtcdIsNamed(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	endpoint := "http://" + listener.Addr().String()
	require.NoError(t, listener.Close())
	var log lines
	opts := leasetest.Options("a")
	opts.EtcdEndpoints, opts.Log, opts.LogLevel = []string{endpoint}, &log, slog.LevelDebug
	address := make(chan string, 1)
	opts.Started = func(a string) { address <- a }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- service.Run(ctx, opts) }()
	status := leasetest.AwaitStatus(t, <-address, "it names etcd", func(s *leasestatus.GetStatusResponse) bool {
		return len(s.GetReason()) > len("the session with the store is not certain")
	})
	assert.Contains(t, status.GetReason(), "etcd at "+endpoint)
	assert.Contains(t, status.GetReason(), "connection refused")
	require.Eventually(t, func() bool { return log.has("waiting for the store") }, 10*time.Second, 10*time.Millisecond)
	assert.True(t, log.has("etcd at "+endpoint))
	assert.True(t, log.has("connection refused"))
	stop()
	require.NoError(t, <-done)
}
