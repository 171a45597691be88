package store

import (
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
