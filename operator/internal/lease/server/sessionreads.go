package server

import (
	"fmt"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	// maxGetMany is how many names one message may ask about.
	maxGetMany = 1000
	// getManyParallel is how many of those that cannot be answered at once are read at a time.
	getManyParallel = 32
)

// startGetMany reads many leases in short: at once those that are served here and not about to change, which is most. If there are
// others, the answer waits for them.
func (ss *sessionStream) startGetMany(id uint64, req *leasev1.SessionGetMany) {
	names := req.GetNames()
	var check checker
	check.require(len(names) <= maxGetMany, "names", "has %d entries; at most %d are allowed", len(names), maxGetMany)
	for i, name := range names {
		if err := core.ValidateName(name); err != nil && len(check.violations) == 0 {
			check.named(fmt.Sprintf("names[%d]", i), err)
		}
	}
	if err := check.err(); err != nil {
		ss.refuse(id, err)
		return
	}
	found, rest := ss.server.engine.Summarize(names)
	summaries := make([]leasev1.LeaseSummary, len(names)) // one allocation for all
	out := make([]*leasev1.LeaseSummary, len(names))
	for i := range out {
		out[i] = &summaries[i]
		summarize(out[i], &found[i])
	}
	answer := &leasev1.SessionResponse{Message: &leasev1.SessionResponse_GotMany{GotMany: &leasev1.SessionGotMany{Leases: out}}}
	if len(rest) == 0 {
		ss.send(id, answer)
		return
	}
	ss.call(ss.calls, id, func() {
		var reads errgroup.Group
		reads.SetLimit(getManyParallel)
		for _, i := range rest {
			reads.Go(func() error {
				out[i] = ss.getInShort(names[i])
				return nil
			})
		}
		_ = reads.Wait() // the functions return no errors
		ss.send(id, answer)
	})
}

// getInShort reads a lease wherever it is served, and waits for what is about to change it.
func (ss *sessionStream) getInShort(name string) *leasev1.LeaseSummary {
	got, err := ss.server.getFor(ss.ctx, &leasev1.GetRequest{Name: name}, ss.caller)
	if err != nil {
		st := status.Convert(ss.server.toError(err)).Proto()
		return &leasev1.LeaseSummary{Refused: &leasev1.SessionRefused{Code: st.GetCode(), Message: st.GetMessage(), Details: st.GetDetails()}}
	}
	lease := got.GetLease()
	holds := lease.GetHolds()
	out := &leasev1.LeaseSummary{Holds: int32(len(holds)), Waiters: lease.GetWaiters(), Revision: lease.GetRevision()}
	if n := len(holds); n > 0 {
		h := holds[n-1]
		out.Token, out.Holder, out.Mode = h.GetToken(), h.GetHolder(), h.GetMode()
		out.ExpiresInMillis = h.GetExpiresIn().AsDuration().Milliseconds()
	}
	return out
}

func summarize(out *leasev1.LeaseSummary, sum *core.Summary) {
	out.Token, out.Holder, out.Mode, out.Holds = sum.Token, sum.Holder, pbMode(sum.Mode), int32(sum.Holds)
	out.Waiters, out.ExpiresInMillis, out.Revision = int32(sum.Waiters), sum.ExpiresIn.Milliseconds(), sum.Revision
}
