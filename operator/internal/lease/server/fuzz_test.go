package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// Whatever bytes a client sends, a request that is let in is within all bounds, and can be stored and shown.
func FuzzAcquireRequest(f *testing.F) {
	for _, req := range []*leasev1.AcquireRequest{
		{Name: "a/b", Ttl: durationpb.New(time.Minute), Wait: &leasev1.Wait{Timeout: durationpb.New(time.Second)}},
		{Name: "a", Mode: leasev1.LeaseMode_LEASE_MODE_PERMITS, Permits: 2, PermitsTotal: 5, Metadata: map[string]string{"k": "v"}},
		{Name: "../a", Mode: 7, Permits: -1, Ttl: &durationpb.Duration{Seconds: -1, Nanos: 2e9}},
	} {
		data, err := proto.Marshal(req)
		require.NoError(f, err)
		f.Add(data)
	}
	s := &Server{opts: Options{TTLs: TTLs{Min: time.Second, Max: 24 * time.Hour, Default: time.Minute}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		var req leasev1.AcquireRequest
		if proto.Unmarshal(data, &req) != nil {
			return
		}
		got, err := s.acquireRequest(&req, caller{address: "127.0.0.1:1", relayed: true})
		if err != nil {
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Violations)
			return
		}
		require.NoError(t, core.ValidateName(got.Name))
		require.NotEmpty(t, got.Holder)
		require.NotEmpty(t, got.RequestID)
		require.True(t, got.TTL >= time.Second && got.TTL <= 24*time.Hour, "TTL %s", got.TTL)
		require.GreaterOrEqual(t, got.WaitFor, time.Duration(0))
		require.True(t, got.Mode >= core.Exclusive && got.Mode <= core.Permits)
		if got.Mode == core.Permits {
			require.True(t, got.Permits >= 1 && got.Permits <= got.PermitsTotal)
		} else {
			require.Zero(t, got.Permits)
			require.Zero(t, got.PermitsTotal)
		}
		require.LessOrEqual(t, len(got.Value), MaxValue)
	})
}
