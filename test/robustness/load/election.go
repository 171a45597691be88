package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

// candidatePrefix is what the names of candidates begin with.
const candidatePrefix = "candidate-"

// name is what the client calls itself as a candidate.
func (c *client) name() string { return fmt.Sprint(candidatePrefix, c.id) }

// value is one that the client proclaims and nobody else ever does.
func (c *client) value() string {
	c.values++
	return fmt.Sprintf("%s/%d", c.name(), c.values)
}

func (c *client) election() string { return c.Elections[c.rng.IntN(len(c.Elections))].Name }

// candidate campaigns and leads by plain calls until the context ends.
func (c *client) candidate(ctx context.Context) error {
	for ctx.Err() == nil {
		election := c.election()
		if c.rng.IntN(3) == 0 {
			if _, err := c.viewLeader(ctx, election); err != nil {
				return err
			}
		}
		h, err := c.campaign(ctx, election)
		if err == nil && h.token != 0 {
			err = c.lead(ctx, h)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *client) campaign(ctx context.Context, election string) (held, error) {
	wait := 50*time.Millisecond + c.upTo(TTL/2)
	op := history.Op{Name: election, Weight: 1, Holder: c.name(), Text: c.value()}
	req := &leasev1.CampaignRequest{
		Name: election, Candidate: op.Holder, Value: []byte(op.Text), Ttl: durationpb.New(TTL), RequestId: lease.NewRequestID(),
		WaitTimeout: durationpb.New(wait),
	}
	return c.grant(ctx, op, func() (answer, int64, int64, error) {
		won, sent, returned, err := callOf(ctx, c, callTimeout+wait, leasev1.NewElectionServiceClient, leasev1.ElectionServiceClient.Campaign, req)
		return answer{won.GetLeader().GetToken(), won.GetExpiresIn().AsDuration()}, sent, returned, err
	})
}

// lead does what leaders do, until it resigns, hands over or forgets that it leads.
func (c *client) lead(ctx context.Context, h held) error {
	for range c.rng.IntN(8) {
		var err error
		alive := true
		switch c.rng.IntN(6) {
		case 0, 1:
			alive, err = c.keepAlive(ctx, &h)
		case 2, 3:
			alive, err = c.proclaim(ctx, h)
		case 4:
			_, err = c.viewLeader(ctx, h.name)
		default:
			alive, err = c.increment(ctx, h.name, h.token)
		}
		if err != nil || !alive || ctx.Err() != nil {
			return err
		}
	}
	switch end := c.rng.IntN(60); {
	case end == 0: // it forgets that it leads
		return nil
	case end < 30:
		moved, err := c.transfer(ctx, h)
		if moved || err != nil {
			return err
		}
	}
	return c.resign(ctx, h)
}

// proclaim changes the leader's value, and returns false when it does not lead any more.
func (c *client) proclaim(ctx context.Context, h held) (bool, error) {
	op := history.Op{Name: h.name, Kind: history.Proclaimed, Token: h.token, Holder: c.name(), Text: c.value()}
	c.Recorder.Open(h.name, h.token)
	for range tries {
		got, sent, returned, err := callOf(ctx, c, callTimeout, leasev1.NewElectionServiceClient, leasev1.ElectionServiceClient.Proclaim,
			&leasev1.ProclaimRequest{Name: h.name, Token: h.token, Value: []byte(op.Text)})
		if op.Call == 0 {
			op.Call = sent
		}
		op.Return = returned
		switch {
		case err == nil:
			op.Value = got.GetRevision()
			c.add(op)
			c.Recorder.Settled(h.name, h.token)
			return true, nil
		case status.Code(err) == codes.NotFound:
			op.Kind, op.Call, op.Holder, op.Text = history.Lapsed, sent, "", ""
			c.add(op)
			return false, nil
		case !unknown(err):
			return false, fmt.Errorf("proclaim in %q: %w", h.name, err)
		}
	}
	c.Recorder.Unknown()
	return true, nil
}

// transfer hands the leadership to somebody who waits for it, and returns false if it goes on because nobody of that name does.
func (c *client) transfer(ctx context.Context, h held) (bool, error) {
	to, err := c.viewLeader(ctx, h.name)
	if err != nil {
		return false, err
	}
	if to == "" {
		to = "nobody"
	}
	c.Recorder.Void(h.name, h.token, history.Now())
	op := history.Op{Name: h.name, Kind: history.Transferred, Former: h.token, Weight: 1, Holder: to}
	for range tries {
		got, sent, returned, err := callOf(ctx, c, callTimeout, leasev1.NewElectionServiceClient, leasev1.ElectionServiceClient.Transfer,
			&leasev1.TransferRequest{Name: h.name, Token: h.token, To: to})
		first := op.Call == 0
		if first {
			op.Call = sent
		}
		op.Return = returned
		switch {
		case err == nil:
			op.Token = got.GetLeader().GetToken()
			c.add(op)
			if got.GetLeader().GetCandidate() != to {
				return true, fmt.Errorf("a transfer of %q to %q went to %q", h.name, to, got.GetLeader().GetCandidate())
			}
			return true, nil
		case status.Code(err) == codes.FailedPrecondition:
			c.add(history.Op{Name: h.name, Kind: history.Current, Call: sent, Return: returned, Token: h.token})
			if first { // an earlier try may still be under way
				c.Recorder.Valid(h.name, h.token)
			}
			return false, nil
		case status.Code(err) == codes.NotFound: // it was over, or an earlier try has done it
			c.add(history.Op{Name: h.name, Kind: history.Lapsed, Call: op.Call, Return: returned, Token: h.token})
			return true, nil
		case !unknown(err):
			return false, fmt.Errorf("transfer %q to %q: %w", h.name, to, err)
		}
	}
	c.Recorder.Unknown()
	return true, nil
}

func (c *client) resign(ctx context.Context, h held) error {
	if c.rng.IntN(2) == 0 {
		return c.release(ctx, h)
	}
	c.Recorder.Void(h.name, h.token, history.Now())
	op := history.Op{Name: h.name, Kind: history.NotHeld, Token: h.token}
	for range tries {
		resigned, sent, returned, err := callOf(ctx, c, callTimeout, leasev1.NewElectionServiceClient, leasev1.ElectionServiceClient.Resign,
			&leasev1.ResignRequest{Name: h.name, Token: h.token})
		again := op.Call != 0
		if !again {
			op.Call = sent
		}
		op.Return = returned
		switch {
		case err == nil && resigned.GetResigned():
			op.Kind = history.Released
		case err == nil && again:
			op.Kind = history.Gone
		case err == nil:
		case unknown(err):
			continue
		default:
			return fmt.Errorf("resign from %q: %w", h.name, err)
		}
		c.add(op)
		return nil
	}
	c.Recorder.Unknown()
	return nil
}

// viewLeader reads who leads and with which value, and returns one of those who campaign, if there are any.
func (c *client) viewLeader(ctx context.Context, election string) (string, error) {
	got, sent, returned, err := call(ctx, c, callTimeout, leasev1.LeaseServiceClient.Get, &leasev1.GetRequest{Name: election, IncludeQueue: true})
	if err != nil {
		if unknown(err) {
			c.Recorder.Unknown()
			return "", nil
		}
		return "", fmt.Errorf("get %q: %w", election, err)
	}
	op := history.Op{Name: election, Kind: history.Viewed, Call: sent, Return: returned}
	for _, h := range got.GetLease().GetHolds() {
		op.Seen = append(op.Seen, h.GetToken())
		op.Holder, op.Text = h.GetHolder(), string(h.GetValue())
	}
	c.add(op)
	queue := got.GetLease().GetQueue()
	if len(queue) == 0 {
		return "", nil
	}
	return queue[c.rng.IntN(len(queue))].GetHolder(), nil
}

// leader campaigns and leads by the Go client.
func (c *client) leader(ctx context.Context) error {
	for ctx.Err() == nil {
		conn, err := c.conn()
		if err != nil {
			return err
		}
		if err := c.term(ctx, lease.New(conn), c.election()); err != nil {
			return err
		}
	}
	return nil
}

// term campaigns once, and leads for a while.
func (c *client) term(ctx context.Context, client *lease.Client, election string) error {
	bound, cancel := context.WithTimeout(ctx, 300*time.Millisecond+c.upTo(time.Second))
	defer cancel()
	op := history.Op{Name: election, Kind: history.Granted, Weight: 1, Holder: c.name(), Text: c.value(), Call: history.Now()}
	l, err := client.Campaign(bound, election, op.Holder, lease.WithTTL(TTL), lease.WithValue([]byte(op.Text)))
	if err != nil {
		c.Recorder.Unknown()
		c.elsewhere()
		lab.Sleep(ctx, c.upTo(10*time.Millisecond))
		return nil
	}
	op.Token, op.Until = l.Token(), history.Now()+int64(l.Remaining())
	op.Return = history.Now()
	c.add(op)
	for range 1 + c.rng.IntN(8) {
		if !c.believe(election, l.Lease) {
			break
		}
		if _, err := c.increment(ctx, election, l.Token()); err != nil {
			return err
		}
		if c.rng.IntN(3) == 0 {
			c.proclaimBy(ctx, l)
		}
		lab.Sleep(l.Context(), c.upTo(4*time.Millisecond))
	}
	if c.rng.IntN(2) == 0 {
		if err := c.transferBy(ctx, l); err != nil || l.Err() != nil {
			return err
		}
	}
	c.giveBack(ctx, election, l.Lease)
	return nil
}

func (c *client) proclaimBy(ctx context.Context, l *lease.Leadership) {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	op := history.Op{Name: l.Name(), Kind: history.Proclaimed, Token: l.Token(), Holder: c.name(), Text: c.value(), Call: history.Now()}
	c.Recorder.Open(l.Name(), l.Token())
	err := l.Proclaim(bound, []byte(op.Text))
	op.Return = history.Now()
	if err != nil {
		c.Recorder.Unknown()
		return
	}
	c.add(op)
	c.Recorder.Settled(l.Name(), l.Token())
}

// transferBy hands the leadership over, unless nobody waits for it.
func (c *client) transferBy(ctx context.Context, l *lease.Leadership) error {
	to, err := c.viewLeader(ctx, l.Name())
	if err != nil || to == "" {
		return err
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	op := history.Op{Name: l.Name(), Kind: history.Released, Token: l.Token(), Call: history.Now()}
	c.Recorder.Void(l.Name(), l.Token(), op.Call)
	err = l.Transfer(bound, to)
	op.Return = history.Now()
	switch {
	case err == nil:
		c.add(op)
	case l.Err() == nil: // nobody of that name campaigns any more
		c.Recorder.Valid(l.Name(), l.Token())
	case errors.Is(l.Err(), lease.ErrReleased):
		c.Recorder.Unknown()
	}
	return nil
}
