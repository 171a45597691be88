package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// However names and values are spread over owners, the pages have each lease once, in order, and are neither too large nor empty.
func TestPagesAreBoundedAndComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owners := make([][]*leasev1.Lease, rapid.IntRange(1, 3).Draw(t, "owners"))
		var want []string
		for i := range rapid.IntRange(0, 60).Draw(t, "leases") {
			name := fmt.Sprintf("n%03d", i)
			value := make([]byte, rapid.SampledFrom([]int{0, 1 << 10, 64 << 10}).Draw(t, "value"))
			owner := rapid.IntRange(0, len(owners)-1).Draw(t, "owner")
			holds := []*leasev1.Hold{{Value: value}}
			for range rapid.SampledFrom([]int{0, 0, 20}).Draw(t, "more holds") {
				holds = append(holds, holds[0])
			}
			owners[owner] = append(owners[owner], &leasev1.Lease{Name: name, Holds: holds})
			want = append(want, name)
		}
		limit := rapid.IntRange(1, 70).Draw(t, "limit")
		var got []string
		for after, pages := "", 0; ; pages++ {
			require.LessOrEqual(t, pages, len(want))
			var parts []listed
			for _, leases := range owners {
				var rest []*leasev1.Lease
				for _, l := range leases {
					if l.GetName() > after && len(rest) < limit {
						rest = append(rest, l)
					}
				}
				parts = append(parts, listed{leases: rest}.cut(limit))
			}
			response := page(merge(parts), "", limit)
			if n := len(response.GetLeases()); n > 1 {
				require.LessOrEqual(t, n, limit)
				require.LessOrEqual(t, response.SizeVT(), pageBytes+1<<10)
			}
			for _, l := range response.GetLeases() {
				got = append(got, l.GetName())
			}
			if response.GetNextPageToken() == "" {
				break
			}
			require.NotEmpty(t, response.GetLeases())
			after = response.GetLeases()[len(response.GetLeases())-1].GetName()
		}
		require.Equal(t, want, got)
	})
}

// An error must fit into the trailers of all languages, whoever holds the lease.
func TestContentionFitsIntoTrailers(t *testing.T) {
	held := &core.HeldError{Name: "n"}
	for range 16 {
		held.Holds = append(held.Holds, core.HoldView{Hold: core.Hold{
			Token: 1 << 60, Holder: strings.Repeat("h", maxHolder), Identity: strings.Repeat("i", maxHolder), RequestID: strings.Repeat("r", maxRequestID),
			Mode: core.Shared, TTL: time.Hour, Metadata: map[string]string{"k": strings.Repeat("m", maxMetadataValue)}, Value: make([]byte, MaxValue),
			Revocation: &core.Revocation{Reason: strings.Repeat("w", maxReason), RequestedBy: strings.Repeat("i", maxHolder)},
		}})
	}
	c := contention(held)
	require.NotEmpty(t, c.GetHolds())
	for _, h := range c.GetHolds() {
		assert.Empty(t, h.GetValue())
		assert.Empty(t, h.GetMetadata())
		assert.NotEmpty(t, h.GetHolder())
	}
	assert.Less(t, c.SizeVT()*4/3, 6<<10)
}

// What holders attach is left out of what is told again and again too.
func TestPlacesAreToldInBrief(t *testing.T) {
	ss := &sessionStream{out: newOutbox(), pending: map[uint64]*sessionCall{}}
	c := &sessionCall{session: ss, id: 1, name: "n", acquire: &leasev1.AcquireRequest{RequestId: "r", Wait: &leasev1.Wait{}}}
	ss.pending[1] = c
	ss.tell([]*sessionCall{c}, &leasev1.Lease{
		Queue: []*leasev1.Waiter{{RequestId: "r"}},
		Holds: []*leasev1.Hold{{Token: 7, Value: make([]byte, MaxValue), Metadata: map[string]string{"k": "v"}}},
	})
	messages, _ := ss.out.take()
	require.Len(t, messages, 1)
	require.Len(t, messages[0].GetQueued().GetHolds(), 1)
	hold := messages[0].GetQueued().GetHolds()[0]
	assert.Equal(t, int64(7), hold.GetToken())
	assert.Empty(t, hold.GetValue())
	assert.Empty(t, hold.GetMetadata())
}
