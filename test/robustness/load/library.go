package load

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/test/robustness/history"
	"github.com/holdfast-io/holdfast/test/robustness/lab"
)

// acquirer is what the Go client's Client and Session have in common.
type acquirer interface {
	Acquire(ctx context.Context, name string, options ...lease.Option) (*lease.Lease, error)
	TryAcquire(ctx context.Context, name string, options ...lease.Option) (*lease.Lease, error)
}

// leases contends for the names by the Go client, each lease renewed by calls of its own.
func (c *client) leases(ctx context.Context) error {
	for ctx.Err() == nil {
		conn, err := c.conn()
		if err != nil {
			return err
		}
		if err := c.contend(ctx, lease.New(conn)); err != nil {
			return err
		}
	}
	return nil
}

// session contends for the names by a session of the Go client.
func (c *client) session(ctx context.Context) error {
	for ctx.Err() == nil {
		conn, err := c.conn()
		if err != nil {
			return err
		}
		open, cancel := context.WithTimeout(ctx, 2*time.Second)
		session, err := lease.New(conn).NewSession(open, lease.WithTTL(TTL))
		cancel()
		if err != nil {
			c.elsewhere()
			continue
		}
		for i := 0; err == nil && i < 50 && ctx.Err() == nil; i++ {
			err = c.contend(ctx, session)
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = session.Close(end) // it has given back all its leases, or they expire
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// contend acquires one lease, uses it for a while and gives it back.
func (c *client) contend(ctx context.Context, from acquirer) error {
	name := c.Names[c.rng.IntN(len(c.Names))]
	options, weight := name.options(c.rng)
	acquire := from.Acquire
	if c.rng.IntN(2) == 0 {
		acquire = from.TryAcquire
	}
	bound, cancel := context.WithTimeout(ctx, 300*time.Millisecond+c.upTo(time.Second))
	defer cancel()
	called := history.Now()
	l, err := acquire(bound, name.Name, options...)
	if err != nil {
		var heldByOthers *lease.HeldError
		if !errors.As(err, &heldByOthers) {
			c.Recorder.Unknown()
		}
		lab.Sleep(ctx, c.upTo(10*time.Millisecond))
		return nil
	}
	sure := history.Now()
	op := history.Op{Name: name.Name, Kind: history.Granted, Call: called, Token: l.Token(), Weight: weight, Until: sure + int64(l.Remaining())}
	op.Return = history.Now()
	c.add(op)
	lasts := c.upTo(TTL / 4)
	if c.rng.IntN(8) == 0 {
		lasts = c.upTo(3 * TTL)
	}
	for end := history.Now() + int64(lasts); history.Now() < end && ctx.Err() == nil; {
		if !c.believe(name.Name, l) {
			break
		}
		if _, err := c.increment(ctx, name.Name, l.Token()); err != nil {
			return err
		}
		lab.Sleep(l.Context(), c.upTo(20*time.Millisecond))
	}
	c.giveBack(ctx, name.Name, l)
	return nil
}

// believe records that the client is certain of its lease for a while, if it is.
func (c *client) believe(name string, l *lease.Lease) bool {
	op := history.Op{Name: name, Kind: history.Kept, Call: history.Now(), Token: l.Token()}
	remaining := l.Remaining()
	if remaining <= 0 {
		return false
	}
	op.Until = op.Call + int64(remaining)
	op.Return = history.Now()
	c.add(op)
	return true
}

func (c *client) giveBack(ctx context.Context, name string, l *lease.Lease) {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	op := history.Op{Name: name, Kind: history.Gone, Call: history.Now(), Token: l.Token()}
	c.Recorder.Void(name, l.Token(), op.Call)
	err := l.Release(bound)
	op.Return = history.Now()
	switch {
	case err != nil:
		c.Recorder.Unknown()
	case errors.Is(l.Err(), lease.ErrReleased):
		c.add(op)
	} // else it was lost before, and nothing was released
}
