package store

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
)

func TestHoldsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 20, 60)
		h := core.Hold{
			Slot: rapid.Int32Min(0).Draw(t, "slot"), Token: rapid.Int64Min(1).Draw(t, "token"),
			Holder: text.Draw(t, "holder"), Identity: text.Draw(t, "identity"), RequestID: text.Draw(t, "request"),
			Mode: core.Mode(rapid.IntRange(1, 3).Draw(t, "mode")), PermitsTotal: 5, PermitsHeld: rapid.Int32Range(0, 5).Draw(t, "permits"),
			TTL:        time.Duration(rapid.Int64Min(1).Draw(t, "ttl")),
			AcquiredAt: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "at")),
			Revocation: &core.Revocation{Reason: text.Draw(t, "reason"), RequestedBy: "x", Period: time.Second, Force: true},
		}
		data, err := proto.Marshal(holdRecord(&h))
		require.NoError(t, err)
		got, revision, err := decodeHold(data, h.Slot, 7)
		require.NoError(t, err)
		require.Equal(t, h, got)
		require.Equal(t, int64(7), revision)
	})
}

// What an op is taken to add to a batch is not less than what it does: otherwise a batch may become what the store refuses.
func TestSizesAreNotUnderestimated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 300, 1200)
		hold := func() *core.Hold {
			h := &core.Hold{
				Slot: rapid.Int32Min(0).Draw(t, "slot"), Token: rapid.Int64Min(0).Draw(t, "token"), Holder: text.Draw(t, "holder"),
				Identity: text.Draw(t, "identity"), RequestID: text.Draw(t, "request"), Mode: core.Permits,
				PermitsHeld: rapid.Int32Min(0).Draw(t, "permits"), PermitsTotal: rapid.Int32Min(0).Draw(t, "total"),
				TTL: time.Duration(rapid.Int64Min(1).Draw(t, "ttl")), Metadata: rapid.MapOf(text, text).Draw(t, "metadata"),
				Value: []byte(text.Draw(t, "value")),
			}
			if rapid.Bool().Draw(t, "revoked") {
				h.Revocation = &core.Revocation{
					Reason: text.Draw(t, "reason"), RequestedBy: text.Draw(t, "by"), Period: time.Duration(rapid.Int64Min(1).Draw(t, "period")), Force: true,
				}
			}
			return h
		}
		op := core.Op{Name: text.Draw(t, "name")}
		// An op writes each slot once.
		for _, slot := range rapid.SliceOfNDistinct(rapid.Int32Min(0), 1, 3, rapid.ID).Draw(t, "slots") {
			granted, ended := hold(), hold()
			ended.Slot = slot
			op.Writes = append(op.Writes, core.Write{Slot: ended.Slot, Hold: granted})
			op.Ends = append(op.Ends, core.End{Slot: ended.Slot, Reason: core.Abandoned, Hold: *ended})
		}
		require.GreaterOrEqual(t, sizeOf(&op), proto.Size(record([]BatchOp{{Shard: MaxShards, Op: op}})))
	})
}

// A snapshot goes in parts that are not too large, each lease in one of them.
func TestSnapshotsGoInParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var leases []core.LeaseView
		for range rapid.IntRange(0, 40).Draw(t, "leases") {
			value := make([]byte, rapid.SampledFrom([]int{0, 64 << 10, 2 << 20}).Draw(t, "value"))
			leases = append(leases, core.LeaseView{Name: "n", Revision: int64(len(leases)), Holds: []core.HoldView{{Hold: core.Hold{Value: value}}}})
		}
		parts := partsOf(leases)
		require.NotEmpty(t, parts, "nothing is said too")
		require.Len(t, slices.Concat(parts...), len(leases))
		for i, part := range parts {
			size := 0
			for k := range part {
				size += part[k].Holds[0].Size()
			}
			require.True(t, len(part) == 1 || size <= snapshotBytes, "part %d of %d", i, len(parts))
			require.True(t, len(part) > 0 || len(leases) == 0)
		}
	})
}

func FuzzDecodeHold(f *testing.F) {
	data, err := proto.Marshal(holdRecord(&core.Hold{Holder: "h", Mode: core.Exclusive, TTL: time.Second}))
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		h, _, err := decodeHold(data, 0, 7)
		if err != nil {
			return
		}
		require.Positive(t, h.Token)
		require.Positive(t, h.TTL)
		require.LessOrEqual(t, h.PermitsHeld, h.PermitsTotal)
		again, err := proto.Marshal(holdRecord(&h))
		require.NoError(t, err)
		_, _, err = decodeHold(again, 0, 7)
		require.NoError(t, err)
	})
}

func FuzzParseHold(f *testing.F) {
	k := keys{prefix: "/p/"}
	f.Add(k.hold(3, "a/b", 2))
	f.Add("/p/leases/x")
	f.Fuzz(func(t *testing.T, key string) {
		name, slot, err := k.parseHold([]byte(key))
		if err != nil || core.ValidateName(name) != nil {
			return
		}
		again, gotSlot, err := k.parseHold([]byte(k.hold(0, name, slot)))
		require.NoError(t, err)
		require.Equal(t, name, again)
		require.Equal(t, slot, gotSlot)
	})
}
