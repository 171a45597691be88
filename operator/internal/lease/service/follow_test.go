package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// What happens to a hold between its commit and the moment at which its session follows it, the client is told at once, behind the
// grant: here there is no heartbeat. The session comes late since its client does not read.
func TestASessionHearsOfWhatHappenedBeforeItFollows(t *testing.T) {
	replica := leasetest.Start(t, leasetest.Options("alone"))
	client := leasev1.NewLeaseServiceClient(leasetest.Dial(t, replica.Address))
	value := make([]byte, 32<<10)
	big, err := client.Acquire(t.Context(), &leasev1.AcquireRequest{Name: "big", Holder: "h", Ttl: durationpb.New(time.Minute), Value: value})
	require.NoError(t, err)
	require.NotZero(t, big.GetToken())
	for name, c := range map[string]struct {
		revoke *leasev1.RevokeRequest
		told   func(token int64, r *leasev1.SessionResponse) bool
	}{
		"revoked-by-force": {
			&leasev1.RevokeRequest{Reason: "now", Force: true},
			func(token int64, r *leasev1.SessionResponse) bool { return r.GetLost().GetToken() == token },
		},
		"asked-back": {
			&leasev1.RevokeRequest{Reason: "soon", Force: true, Deadline: durationpb.New(time.Minute)},
			func(token int64, r *leasev1.SessionResponse) bool {
				asked := r.GetRevokeRequested()
				left := asked.GetRevocation().GetDeadlineIn().AsDuration()
				return asked.GetToken() == token && asked.GetRevocation().GetReason() == "soon" && left > 50*time.Second && left <= time.Minute
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := openSession(t, client, &leasev1.SessionOpen{Holder: "s", Ttl: durationpb.New(10 * time.Minute)})
			for range 32 { // more than fits between the two without being read
				s.send(&leasev1.SessionRequest{Message: &leasev1.SessionRequest_Get{Get: &leasev1.GetRequest{Name: "big"}}})
			}
			id := s.acquire(name, false)
			var token int64
			require.Eventually(t, func() bool {
				got, err := client.Get(t.Context(), &leasev1.GetRequest{Name: name})
				require.NoError(t, err)
				for _, h := range got.GetLease().GetHolds() {
					token = h.GetToken()
				}
				return token != 0
			}, 20*time.Second, 5*time.Millisecond)
			c.revoke.Name, c.revoke.Token = name, token
			_, err := client.Revoke(t.Context(), c.revoke)
			require.NoError(t, err)

			require.Equal(t, token, s.granted(id).GetToken())
			for !c.told(token, s.next()) {
			}
		})
	}
}
