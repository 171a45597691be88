package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/clock"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/server"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// Replicas that have certificates and ask for none cannot tell each other from clients. What they pass on to each other must end nevertheless,
// and what a client says of somebody else must not be believed.
func TestServerOnlyTLS(t *testing.T) {
	files := leasetest.NewAuthority(t).Issue(t, t.TempDir(), "leases.example")
	secure := func() credentials.TransportCredentials {
		return leasetls.ClientCredentials(leasetls.Files{CA: files.CA})
	}
	var clients []leasev1.LeaseServiceClient
	a, b := listen(t), listen(t)
	cluster := clusterOf(8, a.Addr().String(), b.Addr().String())
	change := func(o *server.Options) {
		o.Identity = func() string { return "leases.example" }
		o.ServerOptions = []grpc.ServerOption{grpc.Creds(leasetls.ServerCredentials(leasetls.Files{Cert: files.Cert, Key: files.Key}))}
		o.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(secure())}
	}
	replica(t, a, 1, cluster, clock.Now, change)
	replica(t, b, 2, cluster, clock.Now, change)
	for _, address := range []string{a.Addr().String(), b.Addr().String()} {
		clients = append(clients, leasev1.NewLeaseServiceClient(leasetest.DialWith(t, address, secure())))
	}
	const leases = 20
	elsewhere := ""
	for i := range leases {
		name := fmt.Sprintf("n%02d", i)
		var header metadata.MD
		_, err := clients[0].Acquire(within(t), &leasev1.AcquireRequest{Name: name, Holder: "me"}, grpc.Header(&header))
		require.NoError(t, err)
		if owner := header.Get("holdfast-owner"); len(owner) > 0 {
			assert.Equal(t, []string{b.Addr().String()}, owner)
			elsewhere = name
		}
	}
	require.NotEmpty(t, elsewhere, "some are passed on")
	for _, client := range clients {
		got, err := client.List(within(t), &leasev1.ListRequest{PageSize: 7})
		require.NoError(t, err)
		assert.Len(t, got.GetLeases(), 7)
	}
	ctx := metadata.NewOutgoingContext(within(t), metadata.Pairs(
		"holdfast-forwarded", "1", "holdfast-identity-bin", "admin", "holdfast-caller", "1.2.3.4:5", "holdfast-shards", "0"))
	_, err := clients[0].Get(ctx, &leasev1.GetRequest{Name: elsewhere})
	assert.Equal(t, codes.Unavailable, status.Code(err), "whoever says that a call was passed on, it is not again")
	name := ""
	for i := 0; name == ""; i++ {
		candidate := fmt.Sprint("own", i)
		if _, err := clients[0].Acquire(ctx, &leasev1.AcquireRequest{Name: candidate}); err == nil {
			name = candidate
		}
	}
	got, err := clients[0].Get(within(t), &leasev1.GetRequest{Name: name})
	require.NoError(t, err)
	assert.Empty(t, got.GetLease().GetHolds()[0].GetIdentity(), "made up")
	assert.NotEqual(t, "1.2.3.4:5", got.GetLease().GetHolds()[0].GetHolder())
}
