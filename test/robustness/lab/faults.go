package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Fault is something that goes wrong for a while.
type Fault struct {
	Name string
	// Inject makes it so, and undoes it when the time is over or the context ends. Processes that it killed run again then.
	Inject func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error
}

func (c *Cluster) anyReplica(rng *rand.Rand) *Replica { return c.Replicas[rng.IntN(len(c.Replicas))] }

func (c *Cluster) anyMember(rng *rand.Rand) *Member { return c.Members[rng.IntN(len(c.Members))] }

// leader is the leading member, or if there is none any.
func (c *Cluster) leader(ctx context.Context, rng *rand.Rand) *Member {
	if m := c.EtcdLeader(ctx); m != nil {
		return m
	}
	return c.anyMember(rng)
}

// Faults are all faults that a random schedule draws from.
func Faults() []Fault {
	return slices.Concat(ownerFaults(), etcdFaults(), trafficFaults(), certificateFaults())
}

// ownerFaults are those of a replica, and of its own way to etcd.
func ownerFaults() []Fault {
	return []Fault{
		{"none", func(ctx context.Context, _ *Cluster, _ *rand.Rand, lasts time.Duration) error {
			Sleep(ctx, lasts)
			return nil
		}},
		{"owner-paused", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			pause(ctx, lasts, c.anyReplica(rng).Process)
			return nil
		}},
		{"owner-killed", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return killed(ctx, lasts, c.anyReplica(rng).Process)
		}},
		{"owner-killed-before-commit", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return killedAround(ctx, c.anyReplica(rng), Upstream, rng, lasts)
		}},
		{"owner-killed-after-commit", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return killedAround(ctx, c.anyReplica(rng), Downstream, rng, lasts)
		}},
		{"owner-stopped", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			r := c.anyReplica(rng)
			stop, cancel := context.WithTimeout(ctx, 15*time.Second)
			defer cancel()
			if err := r.Stop(stop); err != nil {
				return err
			}
			Sleep(ctx, lasts/2)
			return r.Start()
		}},
		{"owner-deposed", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return onLinks(ctx, lasts, c.anyReplica(rng).Etcd, func(l *Link) error {
				return errors.Join(l.Cut(Upstream, 0), l.Cut(Downstream, 0))
			})
		}},
		{"owner-answers-of-etcd-lost", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return onLinks(ctx, lasts, c.anyReplica(rng).Etcd, func(l *Link) error { return l.Cut(Downstream, 0) })
		}},
	}
}

func etcdFaults() []Fault {
	return []Fault{
		{"etcd-leader-killed", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return killed(ctx, lasts, c.leader(ctx, rng).Process)
		}},
		{"etcd-leader-paused", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			pause(ctx, lasts, c.leader(ctx, rng).Process)
			return nil
		}},
		{"etcd-quorum-paused", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			first := rng.IntN(len(c.Members))
			pause(ctx, lasts, c.Members[first].Process, c.Members[(first+1)%len(c.Members)].Process)
			return nil
		}},
		{"etcd-slow", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return onLinks(ctx, lasts, c.anyReplica(rng).Etcd, func(l *Link) error { return l.Delay(Downstream, 100+rng.Int64N(400), 100) })
		}},
		{"etcd-compacted", compacted},
		{"etcd-out-of-space", outOfSpace},
	}
}

// trafficFaults are those of what clients and replicas send one another.
func trafficFaults() []Fault {
	return []Fault{
		{"answers-lost", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return repeatedly(ctx, lasts, []*Link{c.anyReplica(rng).Clients}, func(l *Link) error { return l.Cut(Downstream, 1+rng.Int64N(50)) })
		}},
		{"answers-between-replicas-lost", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			return repeatedly(ctx, lasts, []*Link{c.anyReplica(rng).Peers}, func(l *Link) error { return l.Cut(Downstream, 1+rng.Int64N(50)) })
		}},
		{"connections-reset", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			r := c.anyReplica(rng)
			return repeatedly(ctx, lasts, append([]*Link{r.Clients, r.Peers}, r.Etcd...), func(l *Link) error { return l.Reset(Downstream) })
		}},
		{"requests-delayed", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			// Twice the TTL of the leases in a run.
			return onLinks(ctx, lasts, []*Link{c.anyReplica(rng).Clients}, func(l *Link) error { return l.Delay(Upstream, 2000, 200) })
		}},
	}
}

// pause stops processes and lets them go on when the time is over or the context ends.
func pause(ctx context.Context, lasts time.Duration, processes ...*Process) {
	for _, p := range processes {
		p.Signal(syscall.SIGSTOP)
	}
	Sleep(ctx, lasts)
	for _, p := range processes {
		p.Signal(syscall.SIGCONT)
	}
}

func killed(ctx context.Context, lasts time.Duration, p *Process) error {
	p.Kill()
	Sleep(ctx, lasts)
	return p.Start()
}

// killedAround kills a replica while transactions are on their way to etcd, which did not get them (Upstream), or did and
// whose answers the replica did not get (Downstream).
func killedAround(ctx context.Context, r *Replica, lost Direction, rng *rand.Rand, lasts time.Duration) error {
	if err := onLinks(ctx, 5*time.Millisecond+time.Duration(rng.Int64N(int64(50*time.Millisecond))), r.Etcd, func(l *Link) error {
		return l.Cut(lost, 0)
	}, r.Kill); err != nil {
		return err
	}
	Sleep(ctx, lasts)
	return r.Start()
}

// onLinks does something to links, then after a time finally, and heals them.
func onLinks(ctx context.Context, lasts time.Duration, links []*Link, do func(*Link) error, finally ...func()) error {
	var errs []error
	for _, l := range links {
		errs = append(errs, do(l))
	}
	Sleep(ctx, lasts)
	for _, f := range finally {
		f()
	}
	for _, l := range links {
		errs = append(errs, l.Heal())
	}
	return errors.Join(errs...)
}

// repeatedly does something to links for short moments, one after another.
func repeatedly(ctx context.Context, lasts time.Duration, links []*Link, do func(*Link) error) error {
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		if err := onLinks(ctx, 60*time.Millisecond, links, do); err != nil {
			return err
		}
		Sleep(ctx, 250*time.Millisecond)
	}
	return nil
}

// compacted cuts a replica off from etcd, forgets all history meanwhile, and joins them again.
func compacted(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
	var compactErr error
	err := onLinks(ctx, lasts, c.anyReplica(rng).Etcd, func(l *Link) error {
		return errors.Join(l.Cut(Upstream, 0), l.Cut(Downstream, 0))
	}, func() { compactErr = c.Compact(ctx) })
	return errors.Join(err, compactErr)
}

// Compact makes etcd forget everything but the present state.
func (c *Cluster) Compact(ctx context.Context) error {
	return c.onAnyMember(ctx, func(ctx context.Context, m *Member) error {
		resp, err := m.Client.Get(ctx, "revision")
		if err != nil {
			return fmt.Errorf("compact: %w", err)
		}
		_, err = m.Client.Compact(ctx, resp.Header.GetRevision(), clientv3.WithCompactPhysical())
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		return err
	})
}

// outOfSpace raises etcd's alarm for that: it refuses writes, and goes on renewing sessions, until the alarm is taken back.
func outOfSpace(ctx context.Context, c *Cluster, _ *rand.Rand, lasts time.Duration) error {
	err := c.onAnyMember(ctx, func(ctx context.Context, m *Member) error {
		status, err := m.Client.Status(ctx, "https://"+m.address)
		if err != nil {
			return err
		}
		_, err = pb.NewMaintenanceClient(m.Client.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
			Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.GetMemberId(), Alarm: pb.AlarmType_NOSPACE,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("raise the alarm: %w", err)
	}
	Sleep(ctx, lasts)
	return c.disarm(context.WithoutCancel(ctx))
}

func (c *Cluster) disarm(ctx context.Context) error {
	err := c.onAnyMember(ctx, func(ctx context.Context, m *Member) error {
		_, err := m.Client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		return err
	})
	if err != nil {
		return fmt.Errorf("take the alarm back: %w", err)
	}
	return nil
}
