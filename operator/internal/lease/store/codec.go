package store

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store/storepb"
)

const slotSeparator = "#"

// keys makes the keys under a prefix.
type keys struct{ prefix string }

func (k keys) meta() string       { return k.prefix + "meta" }
func (k keys) id() string         { return k.prefix + "id" }
func (k keys) cluster() string    { return k.prefix + "cluster/" }
func (k keys) leader() string     { return k.prefix + "cluster/leader" }
func (k keys) assignment() string { return k.prefix + "cluster/assignment" }
func (k keys) members() string    { return k.prefix + "cluster/members/" }
func (k keys) claims() string     { return k.prefix + "cluster/claims/" }
func (k keys) leases() string     { return k.prefix + "leases/" }

func (k keys) journals() string { return k.prefix + "journal/" }
func (k keys) shards() string   { return k.prefix + "shards/" }
func (k keys) commits() string  { return k.prefix + "commits/" }

func (k keys) member(id SessionID) string  { return k.members() + hex16(uint64(id)) }
func (k keys) commit(id SessionID) string  { return k.commits() + hex16(uint64(id)) }
func (k keys) state(shard int) string      { return k.shards() + hex4(shard) }
func (k keys) journal(id SessionID) string { return k.journals() + hex16(uint64(id)) + "/" }
func (k keys) batch(id SessionID, sequence uint64) string {
	return k.journal(id) + hex16(sequence)
}
func (k keys) claim(shard int) string { return k.claims() + hex4(shard) }
func (k keys) shard(shard int) string { return k.leases() + hex4(shard) + "/" }
func (k keys) name(shard int, name string) string {
	return k.shard(shard) + name + slotSeparator
}

func (k keys) hold(shard int, name string, slot int32) string {
	return k.leases() + hex4(shard) + "/" + name + slotSeparator + strconv.Itoa(int(slot))
}

// hex4 is a shard number in a form that sorts, of four digits.
func hex4(shard int) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[shard>>12&15], digits[shard>>8&15], digits[shard>>4&15], digits[shard&15]})
}

// hex16 is a number in a form that sorts, of sixteen digits.
func hex16(n uint64) string { return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, n)) }

// parseJournal returns whose journal a key is in.
func (k keys) parseJournal(key []byte) (SessionID, error) {
	session, _, _ := strings.Cut(strings.TrimPrefix(string(key), k.journals()), "/")
	id, err := hex.DecodeString(session)
	if err != nil || len(id) != 8 {
		return 0, fmt.Errorf("journal key %q names no session", key)
	}
	return SessionID(binary.BigEndian.Uint64(id)), nil
}

// parseHold is the inverse of hold; the shard is not looked at.
func (k keys) parseHold(key []byte) (name string, slot int32, err error) {
	rest, ok := strings.CutPrefix(string(key), k.leases())
	if !ok {
		return "", 0, fmt.Errorf("key %q is not under %q", key, k.leases())
	}
	_, rest, ok = strings.Cut(rest, "/")
	if !ok {
		return "", 0, fmt.Errorf("key %q has no shard", key)
	}
	name, number, ok := strings.Cut(rest, slotSeparator)
	if !ok {
		return "", 0, fmt.Errorf("key %q has no slot", key)
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 0 {
		return "", 0, fmt.Errorf("key %q has the slot %q, which is no number from 0 on", key, number)
	}
	return name, int32(n), nil
}

// holdRecord is a hold as it is written.
func holdRecord(h *core.Hold) *storepb.Hold {
	record := &storepb.Hold{
		Token: h.Token, Holder: h.Holder, Identity: h.Identity, RequestId: h.RequestID, Mode: int32(h.Mode),
		Permits: h.PermitsHeld, PermitsTotal: h.PermitsTotal, TtlNanos: int64(h.TTL),
		AcquiredUnixMillis: h.AcquiredAt.UnixMilli(), Metadata: h.Metadata, Value: h.Value,
	}
	if r := h.Revocation; r != nil {
		record.Revocation = &storepb.Revocation{
			Reason: r.Reason, RequestedBy: r.RequestedBy, PeriodNanos: int64(r.Period), Force: r.Force,
		}
	}
	return record
}

// decodeHold reads the value of a lease key that was last written at a revision.
func decodeHold(data []byte, slot int32, revision int64) (core.Hold, int64, error) {
	var record storepb.Hold
	if err := proto.Unmarshal(data, &record); err != nil {
		return core.Hold{}, 0, fmt.Errorf("decode a hold: %w", err)
	}
	hold, err := coreHold(&record, slot, revision)
	return hold, cmp.Or(record.GetRevision(), revision), err
}

// coreHold reads a hold that was written at a revision. It refuses what no version has ever written, so that a damaged record is
// noticed and not served.
func coreHold(record *storepb.Hold, slot int32, revision int64) (core.Hold, error) {
	mode := core.Mode(record.GetMode())
	if record.GetMode() < int32(core.Exclusive) || record.GetMode() > int32(core.Permits) {
		return core.Hold{}, fmt.Errorf("decode a hold: mode %d; 1 to 3 are allowed", record.GetMode())
	}
	if record.GetTtlNanos() <= 0 {
		return core.Hold{}, fmt.Errorf("decode a hold: TTL of %d ns; it must be positive", record.GetTtlNanos())
	}
	if record.GetToken() < 0 || record.GetPermits() < 0 || record.GetPermitsTotal() < record.GetPermits() {
		return core.Hold{}, fmt.Errorf("decode a hold: token %d, %d of %d permits; negative or too many",
			record.GetToken(), record.GetPermits(), record.GetPermitsTotal())
	}
	h := core.Hold{
		Slot: slot, Token: record.GetToken(), Holder: record.GetHolder(), Identity: record.GetIdentity(),
		RequestID: record.GetRequestId(), Mode: mode, PermitsHeld: record.GetPermits(),
		PermitsTotal: record.GetPermitsTotal(), TTL: time.Duration(record.GetTtlNanos()),
		AcquiredAt: time.UnixMilli(record.GetAcquiredUnixMillis()), Metadata: record.GetMetadata(), Value: record.GetValue(),
	}
	if h.Token == 0 {
		h.Token = revision
	}
	if r := record.GetRevocation(); r != nil {
		h.Revocation = &core.Revocation{
			Reason: r.GetReason(), RequestedBy: r.GetRequestedBy(), Period: time.Duration(r.GetPeriodNanos()), Force: r.GetForce(),
		}
	}
	return h, nil
}

// sizeOf estimates what an op adds to a batch.
func sizeOf(op *core.Op) int {
	size := 0
	for _, w := range op.Writes {
		size += len(op.Name) + 32
		if w.Hold != nil {
			size += w.Hold.Size()
		}
	}
	for i := range op.Ends {
		size += op.Ends[i].Hold.Size()
	}
	return size
}

// Fits says how many of the ops, from the first on, go into one batch; at least one if there is any.
func Fits(ops []BatchOp) int {
	writes, bytes := 0, 0
	for i := range ops {
		writes += len(ops[i].Op.Writes)
		bytes += sizeOf(&ops[i].Op)
		if i > 0 && (writes > MaxBatchWrites || bytes > MaxBatchBytes) {
			return i
		}
	}
	return len(ops)
}
