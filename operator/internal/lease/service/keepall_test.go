package service_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// One call keeps holds that are served here and there, and says of each what became of it.
func TestKeepAliveAll(t *testing.T) {
	client, owner, names := pair(t, 3)
	names = append(names, "a", "b", "c", "d")
	var holds []*leasev1.KeepAliveRequest
	for _, name := range names {
		holds = append(holds, &leasev1.KeepAliveRequest{Name: name, Token: acquire(t, client, name, "one", time.Minute).GetToken()})
	}
	stale := len(holds)
	holds = append(holds, &leasev1.KeepAliveRequest{Name: names[0], Token: holds[0].GetToken() + 1}, &leasev1.KeepAliveRequest{Name: "..", Token: 1})
	check := func() {
		t.Helper()
		got, err := client.KeepAliveAll(within(t, 30*time.Second), &leasev1.KeepAliveAllRequest{Holds: holds})
		require.NoError(t, err)
		require.Len(t, got.GetResults(), len(holds))
		for i, result := range got.GetResults() {
			switch i {
			case stale:
				assert.Equal(t, int32(5), result.GetRefused().GetCode(), "NOT_FOUND")
			case stale + 1:
				assert.Equal(t, int32(3), result.GetRefused().GetCode(), "INVALID_ARGUMENT")
			default:
				assert.Greater(t, result.GetKept().GetExpiresIn().AsDuration(), 50*time.Second, "%s: %v", holds[i].GetName(), result)
			}
		}
	}
	check()
	require.NoError(t, owner.Process.Kill())
	check() // each is tried until it is served again
}
