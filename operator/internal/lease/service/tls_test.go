package service_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

func TestMutualTLS(t *testing.T) {
	etcd, _ := leasetest.Etcd(t)
	authority := leasetest.NewAuthority(t)
	dirs := map[string]string{"a": t.TempDir(), "b": t.TempDir(), "tenant": t.TempDir()}
	var replicas []*leasetest.Replica
	for _, name := range []string{"a", "b"} {
		opts := leasetest.Options(name)
		opts.EtcdEndpoints = []string{etcd.Endpoint()}
		opts.TLS = authority.Issue(t, dirs[name], "leases.example")
		replicas = append(replicas, leasetest.Start(t, opts))
	}
	tenant := authority.Issue(t, dirs["tenant"], "tenant.example")
	client := leasev1.NewLeaseServiceClient(leasetest.DialWith(t, replicas[1].Address, leasetls.ClientCredentials(tenant)))

	// Some of these are forwarded, with the identity.
	forwarded := 0
	for i := range 10 {
		name := fmt.Sprintf("n%d", i)
		var header metadata.MD
		_, err := client.Acquire(within(t, 10*time.Second), &leasev1.AcquireRequest{Name: name}, grpc.Header(&header))
		require.NoError(t, err)
		forwarded += len(header.Get("holdfast-owner"))
		got, err := client.Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: name})
		require.NoError(t, err)
		assert.Equal(t, "tenant.example", got.GetLease().GetHolds()[0].GetIdentity())
		assert.Equal(t, "tenant.example", got.GetLease().GetHolds()[0].GetHolder())
	}
	assert.Positive(t, forwarded)

	t.Run("an identity cannot be made up", func(t *testing.T) {
		name := "" // one that the replica serves, since it does not pass on what says that it was passed on
		for i := 0; name == ""; i++ {
			if candidate := fmt.Sprint("spoofed", i); ownerOf(t, client, candidate) == "" {
				name = candidate
			}
		}
		ctx := metadata.AppendToOutgoingContext(within(t, 10*time.Second), "holdfast-forwarded", "1", "holdfast-identity-bin", "admin")
		_, err := client.Acquire(ctx, &leasev1.AcquireRequest{Name: name})
		require.NoError(t, err)
		got, err := client.Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: name})
		require.NoError(t, err)
		assert.Equal(t, "tenant.example", got.GetLease().GetHolds()[0].GetIdentity())
	})
	t.Run("without a certificate, or in plain text, nothing is answered", func(t *testing.T) {
		for _, conn := range []*grpc.ClientConn{
			leasetest.DialWith(t, replicas[0].Address, leasetls.ClientCredentials(leasetls.Files{CA: tenant.CA})),
			leasetest.DialWith(t, replicas[0].Address, insecure.NewCredentials()),
			leasetest.DialWith(t, replicas[0].Address, leasetls.ClientCredentials(leasetest.NewAuthority(t).Issue(t, t.TempDir(), "tenant.example"))),
		} {
			_, err := leasev1.NewLeaseServiceClient(conn).Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: "n0"})
			assert.Equal(t, codes.Unavailable, status.Code(err))
		}
	})
	t.Run("certificates and authorities rotate without a restart", func(t *testing.T) {
		next := leasetest.NewAuthority(t)
		next.Issue(t, dirs["a"], "leases.example")
		next.Issue(t, dirs["b"], "leases.example")
		rotated := next.Issue(t, t.TempDir(), "tenant.example")
		fresh := leasev1.NewLeaseServiceClient(leasetest.DialWith(t, replicas[0].Address, leasetls.ClientCredentials(rotated)))
		for i := range 10 {
			_, err := fresh.Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: fmt.Sprintf("n%d", i)})
			require.NoError(t, err)
		}
		old := leasev1.NewLeaseServiceClient(leasetest.DialWith(t, replicas[0].Address, leasetls.ClientCredentials(tenant)))
		_, err := old.Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: "n0"})
		assert.Equal(t, codes.Unavailable, status.Code(err), "the old authority is not believed any more")
	})
}

func TestHealthIsServedWithoutTLSAndAlone(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	opts := leasetest.Options("a")
	opts.DataDir, opts.HealthListen = t.TempDir(), address
	opts.TLS = leasetest.NewAuthority(t).Issue(t, t.TempDir(), "leases.example")
	leasetest.Start(t, opts)

	conn := leasetest.DialWith(t, address, insecure.NewCredentials())
	for _, name := range []string{"", leasev1.LeaseService_ServiceDesc.ServiceName} {
		answer, err := healthpb.NewHealthClient(conn).Check(within(t, 10*time.Second), &healthpb.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, answer.GetStatus(), "service %q", name)
	}
	_, err = leasev1.NewLeaseServiceClient(conn).Get(within(t, 10*time.Second), &leasev1.GetRequest{Name: "n"})
	assert.Equal(t, codes.Unimplemented, status.Code(err), "nothing else is served there")
}
