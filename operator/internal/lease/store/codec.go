package store

import (
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

func (k keys) member(id SessionID) string { return fmt.Sprintf("%s%016x", k.members(), uint64(id)) }
func (k keys) commit(id SessionID) string {
	return fmt.Sprintf("%scommits/%016x", k.prefix, uint64(id))
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

func encodeHold(h *core.Hold) ([]byte, error) {
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
	data, err := proto.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode a hold: %w", err)
	}
	return data, nil
}

// decodeHold reads a hold that was last written at a revision. It refuses what no version has ever
// written, so that a damaged record is noticed and not served.
func decodeHold(data []byte, slot int32, revision int64) (core.Hold, error) {
	var record storepb.Hold
	if err := proto.Unmarshal(data, &record); err != nil {
		return core.Hold{}, fmt.Errorf("decode a hold: %w", err)
	}
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
		size += 2*len(op.Name) + 128
		if w.Hold != nil {
			size += len(w.Hold.Value) + len(w.Hold.Holder) + len(w.Hold.RequestID)
			for k, v := range w.Hold.Metadata {
				size += len(k) + len(v) + 8
			}
		}
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
