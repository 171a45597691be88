package load

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

const (
	// callTimeout bounds one call that does not wait in line.
	callTimeout = 700 * time.Millisecond
	// tries is how often a call whose outcome is unknown is made.
	tries = 4
)

// held is a hold of a raw client.
type held struct {
	name  string
	token int64
	until int64
}

// raw contends for the names by plain calls until the context ends.
func (c *client) raw(ctx context.Context) error {
	var old held
	for ctx.Err() == nil {
		name := c.Names[c.rng.IntN(len(c.Names))]
		h, err := c.acquire(ctx, name)
		if err != nil {
			return err
		}
		if h.token == 0 {
			err = c.look(ctx, name.Name, old)
		} else {
			err = c.hold(ctx, h)
			old = h
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// look reads a name, and now and then does something with a token that is over.
func (c *client) look(ctx context.Context, name string, old held) error {
	lab.Sleep(ctx, c.upTo(4*time.Millisecond))
	if old.token != 0 && c.rng.IntN(20) == 0 {
		switch c.rng.IntN(4) {
		case 0:
			_, err := c.keepAlive(ctx, &old)
			return err
		case 1:
			return c.check(ctx, old)
		case 2:
			return c.release(ctx, old)
		default:
			_, err := c.increment(ctx, old.name, old.token)
			return err
		}
	}
	return c.view(ctx, name)
}

// hold does what holders do, and some things that they should not do.
func (c *client) hold(ctx context.Context, h held) error {
	for range c.rng.IntN(12) {
		var err error
		alive := true
		switch c.rng.IntN(16) {
		case 0:
			err = c.check(ctx, h)
		case 1:
			err = c.view(ctx, h.name)
		case 2, 3, 4, 5, 6:
			alive, err = c.keepAlive(ctx, &h)
		case 7:
			lab.Sleep(ctx, c.upTo(30*time.Millisecond))
		default:
			alive, err = c.increment(ctx, h.name, h.token)
		}
		if err != nil || !alive || ctx.Err() != nil {
			return err
		}
	}
	switch c.rng.IntN(40) {
	case 0: // it forgets the hold
		return nil
	case 1: // it is held up for longer than the TTL, and goes on as if nothing had happened
		lab.Sleep(ctx, TTL+c.upTo(TTL/2))
		if _, err := c.increment(ctx, h.name, h.token); err != nil {
			return err
		}
		if _, err := c.keepAlive(ctx, &h); err != nil {
			return err
		}
	}
	if c.rng.IntN(8) == 0 {
		return c.revoke(ctx, h)
	}
	return c.release(ctx, h)
}

// call makes one call of the lease service and says when it was sent and when it returned.
func call[Req, Resp any](ctx context.Context, c *client, timeout time.Duration, do func(leasev1.LeaseServiceClient, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (resp Resp, sent, returned int64, err error) {
	return callOf(ctx, c, timeout, leasev1.NewLeaseServiceClient, do, req)
}

// callOf is call for any service.
func callOf[Service, Req, Resp any](ctx context.Context, c *client, timeout time.Duration, service func(grpc.ClientConnInterface) Service,
	do func(Service, context.Context, Req, ...grpc.CallOption) (Resp, error), req Req,
) (resp Resp, sent, returned int64, err error) {
	conn, err := c.conn()
	if err != nil {
		return resp, 0, 0, err
	}
	// A call is not cut off by the end of the run: only faults make outcomes unknown.
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	sent = history.Now()
	resp, err = do(service(conn), bound, req)
	returned = history.Now()
	if err != nil && unknown(err) {
		c.elsewhere()
		lab.Sleep(ctx, c.upTo(20*time.Millisecond))
	}
	return resp, sent, returned, err
}

// acquire asks for a hold, again with the same request id when the outcome is unknown. Token 0: it got none.
func (c *client) acquire(ctx context.Context, n Name) (held, error) {
	req, weight := n.request(c.rng)
	req.RequestId, req.Ttl, req.Holder = lease.NewRequestID(), durationpb.New(TTL), fmt.Sprint("client-", c.id)
	timeout := callTimeout
	if c.rng.IntN(3) == 0 {
		wait := 50*time.Millisecond + c.upTo(500*time.Millisecond)
		req.Wait = &leasev1.Wait{Timeout: durationpb.New(wait)}
		timeout += wait
	}
	return c.grant(ctx, history.Op{Name: n.Name, Weight: weight}, func() (answer, int64, int64, error) {
		granted, sent, returned, err := call(ctx, c, timeout, leasev1.LeaseServiceClient.Acquire, req)
		return answer{granted.GetToken(), granted.GetExpiresIn().AsDuration()}, sent, returned, err
	})
}

// answer is what a grant says.
type answer struct {
	token     int64
	expiresIn time.Duration
}

// grant makes a call for a hold, again when its outcome is unknown, and completes and records the operation. Token 0: it got none.
func (c *client) grant(ctx context.Context, op history.Op, once func() (got answer, sent, returned int64, err error)) (held, error) {
	first := int64(0)
	for try := 1 + c.rng.IntN(tries); try > 0 && ctx.Err() == nil; try-- {
		got, sent, returned, err := once()
		if first == 0 {
			first = sent
		}
		switch code := status.Code(err); {
		case err == nil:
			op.Kind, op.Call, op.Return, op.Token, op.Until = history.Granted, first, returned, got.token, sent+int64(got.expiresIn)
			c.add(op)
			return held{name: op.Name, token: op.Token, until: op.Until}, nil
		case code == codes.Aborted:
			c.add(history.Op{Name: op.Name, Kind: history.Refused, Call: sent, Return: returned, Seen: contention(err)})
			return held{}, nil
		case code == codes.FailedPrecondition && first != sent: // an earlier try was granted, and that is over
			c.Recorder.Unknown()
			return held{}, nil
		case !unknown(err):
			return held{}, fmt.Errorf("acquire %q: %w", op.Name, err)
		}
	}
	c.Recorder.Unknown()
	return held{}, nil
}

func contention(err error) []int64 {
	var tokens []int64
	for _, detail := range status.Convert(err).Details() {
		if c, ok := detail.(*leasev1.Contention); ok {
			for _, h := range c.GetHolds() {
				tokens = append(tokens, h.GetToken())
			}
		}
	}
	return tokens
}

// keepAlive renews a hold, and returns false when that is over.
func (c *client) keepAlive(ctx context.Context, h *held) (bool, error) {
	kept, sent, returned, err := call(ctx, c, callTimeout, leasev1.LeaseServiceClient.KeepAlive, &leasev1.KeepAliveRequest{Name: h.name, Token: h.token})
	op := history.Op{Name: h.name, Call: sent, Return: returned, Token: h.token}
	switch {
	case err == nil:
		op.Kind, op.Until = history.Kept, sent+int64(kept.GetExpiresIn().AsDuration())
		c.add(op)
		if got := kept.GetExpiresIn().AsDuration(); got < TTL {
			return false, fmt.Errorf("a keepalive of %q gave %s instead of the TTL of %s", h.name, got, TTL)
		}
		return true, nil
	case status.Code(err) == codes.NotFound:
		op.Kind = history.Lapsed
		c.add(op)
		return false, nil
	case unknown(err):
		c.Recorder.Unknown()
		return true, nil
	}
	return false, fmt.Errorf("keep %q alive: %w", h.name, err)
}

func (c *client) release(ctx context.Context, h held) error {
	c.Recorder.Void(h.name, h.token, history.Now())
	first := int64(0)
	for range tries {
		released, sent, returned, err := call(ctx, c, callTimeout, leasev1.LeaseServiceClient.Release, &leasev1.ReleaseRequest{Name: h.name, Token: h.token})
		op := history.Op{Name: h.name, Call: sent, Return: returned, Token: h.token, Kind: history.NotHeld}
		if first == 0 {
			first = sent
		}
		if err != nil && !unknown(err) {
			return fmt.Errorf("release %q: %w", h.name, err)
		}
		if err != nil {
			continue
		}
		switch {
		case released.GetReleased():
			op.Kind, op.Call = history.Released, first
		case sent != first:
			op.Kind, op.Call = history.Gone, first
		}
		c.add(op)
		return nil
	}
	c.Recorder.Unknown()
	return nil
}

// revoke ends a hold by force, as somebody else may.
func (c *client) revoke(ctx context.Context, h held) error {
	c.Recorder.Void(h.name, h.token, history.Now())
	first := int64(0)
	for range tries {
		revoked, sent, returned, err := call(ctx, c, callTimeout, leasev1.LeaseServiceClient.Revoke, &leasev1.RevokeRequest{
			Name: h.name, Token: h.token, Force: true, Reason: "of the test",
		})
		op := history.Op{Name: h.name, Call: sent, Return: returned, Token: h.token, Kind: history.Lapsed}
		if first == 0 {
			first = sent
		}
		switch {
		case err == nil && !revoked.GetEnded():
			return fmt.Errorf("revoke %q: it was not ended", h.name)
		case err == nil:
			op.Kind, op.Call = history.Released, first
		case status.Code(err) == codes.NotFound && sent != first: // maybe by an earlier try
			op.Call = first
		case status.Code(err) == codes.NotFound:
		case unknown(err):
			continue
		default:
			return fmt.Errorf("revoke %q: %w", h.name, err)
		}
		c.add(op)
		return nil
	}
	c.Recorder.Unknown()
	return nil
}

func (c *client) check(ctx context.Context, h held) error {
	checked, sent, returned, err := call(ctx, c, callTimeout, leasev1.LeaseServiceClient.CheckToken, &leasev1.CheckTokenRequest{Name: h.name, Token: h.token})
	op := history.Op{Name: h.name, Call: sent, Return: returned, Token: h.token, Kind: history.NotHeld}
	switch {
	case err == nil:
		if checked.GetVerdict() == leasev1.CheckTokenResponse_VERDICT_CURRENT {
			op.Kind = history.Current
		}
		c.add(op)
	case unknown(err):
		c.Recorder.Unknown()
	default:
		return fmt.Errorf("check a token of %q: %w", h.name, err)
	}
	return nil
}

func (c *client) view(ctx context.Context, name string) error {
	if c.rng.IntN(8) == 0 {
		return c.list(ctx, name)
	}
	got, sent, returned, err := call(ctx, c, callTimeout, leasev1.LeaseServiceClient.Get, &leasev1.GetRequest{Name: name})
	op := history.Op{Name: name, Kind: history.Viewed, Call: sent, Return: returned}
	switch {
	case err == nil:
		for _, h := range got.GetLease().GetHolds() {
			op.Seen = append(op.Seen, h.GetToken())
		}
		c.add(op)
	case unknown(err):
		c.Recorder.Unknown()
	default:
		return fmt.Errorf("get %q: %w", name, err)
	}
	return nil
}

// list is view by a list of all names that begin like this one.
func (c *client) list(ctx context.Context, name string) error {
	got, sent, returned, err := call(ctx, c, callTimeout, leasev1.LeaseServiceClient.List, &leasev1.ListRequest{Prefix: name})
	op := history.Op{Name: name, Kind: history.Viewed, Call: sent, Return: returned}
	switch {
	case err == nil:
		for _, l := range got.GetLeases() {
			for _, h := range l.GetHolds() {
				if l.GetName() == name {
					op.Seen = append(op.Seen, h.GetToken())
				}
			}
		}
		c.add(op)
	case unknown(err):
		c.Recorder.Unknown()
	default:
		return fmt.Errorf("list %q: %w", name, err)
	}
	return nil
}
