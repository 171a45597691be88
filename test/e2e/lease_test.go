//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// leaseClient speaks the public API to a tenant's endpoint, as any gRPC client would.
type leaseClient struct {
	leasev1.LeaseServiceClient
	connection *grpc.ClientConn
}

// clientTLS reads the Secret that the operator keeps for the clients of a LeaseService, as a pod that mounts it would.
func clientTLS(t *testing.T, tc *testCluster, service types.NamespacedName) credentials.TransportCredentials {
	t.Helper()
	var secret corev1.Secret
	name := types.NamespacedName{Namespace: service.Namespace, Name: service.Name + "-client-tls"}
	require.NoError(t, tc.client.Get(t.Context(), name, &secret))
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(secret.Data["ca.crt"]))
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: authorities, Certificates: []tls.Certificate{pair},
		ServerName: service.Name + "." + service.Namespace + ".svc",
	})
}

// dialLeases connects to an address in the cluster; names go through the cluster's own DNS.
func dialLeases(t *testing.T, tc *testCluster, address string, creds credentials.TransportCredentials) *leaseClient {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(tc.DialTarget),
		grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"waitForReady":true}]}`))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return &leaseClient{LeaseServiceClient: leasev1.NewLeaseServiceClient(connection), connection: connection}
}

func (c *leaseClient) acquire(ctx context.Context, name, holder string, ttl time.Duration) (*leasev1.AcquireResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return c.Acquire(ctx, &leasev1.AcquireRequest{Name: name, Holder: holder, Ttl: durationpb.New(ttl)})
}

func (c *leaseClient) keepAlive(ctx context.Context, name string, token int64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := c.KeepAlive(ctx, &leasev1.KeepAliveRequest{Name: name, Token: token})
	return err
}

func (c *leaseClient) release(ctx context.Context, name string, token int64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, err := c.Release(ctx, &leasev1.ReleaseRequest{Name: name, Token: token})
	return err
}

// leaderOf asks one pod who leads.
func leaderOf(ctx context.Context, connection *grpc.ClientConn) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, err := leasestatus.NewLeaseStatusServiceClient(connection).GetStatus(ctx, &leasestatus.GetStatusRequest{})
	return answer.GetLeader(), err
}

// retried repeats a call while the service is failing over (UNAVAILABLE), for at most the given time.
func retried(t *testing.T, timeout time.Duration, what string, call func(ctx context.Context) error) {
	t.Helper()
	eventually(t, timeout, what, func(ctx context.Context) string {
		err := call(ctx)
		switch status.Code(err) {
		case codes.OK:
			return ""
		case codes.Unavailable, codes.DeadlineExceeded:
			return err.Error()
		default:
			require.NoError(t, err, what)
			return ""
		}
	})
}
