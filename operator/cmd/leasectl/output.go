package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// print writes a message as one line of JSON, or as a table.
func (a *app) print(message proto.Message, fill func(*table)) error {
	if a.output == "json" {
		data, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(message)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		_, err = fmt.Fprintln(a.out, string(data))
		return err
	}
	w := tabwriter.NewWriter(a.out, 0, 4, 3, ' ', 0)
	fill(&table{w})
	return w.Flush()
}

// table writes rows; what goes wrong comes out when the writer is flushed.
type table struct{ w io.Writer }

func (t *table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t *table) line(text string) { fmt.Fprintln(t.w, text) }

func (t *table) leases(leases ...*leasev1.Lease) {
	t.row("NAME", "HOLDER", "MODE", "TOKEN", "EXPIRES IN", "WAITERS")
	for _, l := range leases {
		for _, h := range l.GetHolds() {
			t.row(l.GetName(), h.GetHolder(), mode(h.GetMode(), h.GetPermits(), l.GetPermitsTotal()), number(h.GetToken()),
				duration(h.GetExpiresIn()), strconv.Itoa(int(l.GetWaiters())))
		}
	}
}

func (t *table) watch(got *leasev1.WatchResponse) {
	if s := got.GetSnapshot(); s != nil {
		for _, l := range s.GetLeases() {
			for _, h := range l.GetHolds() {
				t.row(number(l.GetRevision()), "HELD", l.GetName(), h.GetHolder(), number(h.GetToken()))
			}
		}
		if s.GetCause() == leasev1.WatchSnapshot_CAUSE_COMPACTED && s.GetComplete() {
			t.row(number(got.GetRevision()), "RELISTED", "older changes are no longer kept")
		}
	}
	for _, e := range got.GetChanges().GetEvents() {
		what := strings.TrimPrefix(e.GetKind().String(), "KIND_")
		if e.GetKind() == leasev1.WatchEvent_KIND_ENDED {
			what = strings.TrimPrefix(e.GetEndReason().String(), "END_REASON_")
		}
		t.row(number(e.GetRevision()), what, e.GetName(), e.GetHold().GetHolder(), number(e.GetHold().GetToken()))
	}
}

func (t *table) status(s *leasestatus.GetStatusResponse) {
	ready := "ready"
	if !s.GetReady() {
		ready = "not ready: " + s.GetReason()
	}
	t.line(fmt.Sprintf("%s is %s, version %s, up %s; leases here %d, waiting here %d",
		s.GetPodName(), ready, s.GetVersion(), s.GetUptime().AsDuration().Round(time.Second), s.GetActiveLeases(), s.GetWaiters()))
	t.row("")
	t.row("REPLICA", "ADDRESS", "SHARDS", "LEADER", "DRAINING")
	for _, r := range s.GetReplicas() {
		t.row(r.GetName(), r.GetAddress(), strconv.Itoa(int(r.GetShards())), yes(r.GetLeader()), yes(r.GetDraining()))
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func mode(m leasev1.LeaseMode, permits, total int32) string {
	name := strings.ToLower(strings.TrimPrefix(m.String(), "LEASE_MODE_"))
	if m != leasev1.LeaseMode_LEASE_MODE_PERMITS {
		return name
	}
	if total == 0 {
		return fmt.Sprintf("%d permits", permits)
	}
	return fmt.Sprintf("%d of %d permits", permits, total)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func duration(d *durationpb.Duration) string { return d.AsDuration().Round(time.Millisecond).String() }
