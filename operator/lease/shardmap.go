package lease

import (
	"context"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// start begins to follow the shard map at the first call.
func (r *router) start() {
	r.begin.Do(func() { r.wait.Go(r.follow) })
}

// follow keeps the map current until the router is closed or the service says that it has none.
func (r *router) follow() {
	for pause := retryFirst; ; pause = min(2*pause, retryMost) {
		heard, err := r.watch()
		if heard {
			pause = retryFirst
		}
		if code := status.Code(err); code == codes.Unimplemented || code == codes.PermissionDenied || code == codes.Unauthenticated {
			r.apply(nil)
			return
		}
		if !sleep(r.ctx, jittered(pause)) {
			return
		}
	}
}

// watch follows the map on one stream until it breaks.
func (r *router) watch() (heard bool, err error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	conn := grpc.ClientConnInterface(r.given)
	if p := r.any(); p != nil {
		conn, ctx = p.conn, p.addressed(ctx)
	}
	stream, err := leasev1.NewLeaseServiceClient(conn).WatchShardMap(ctx, &leasev1.WatchShardMapRequest{})
	if err != nil {
		return false, err
	}
	for {
		got, err := stream.Recv()
		if err != nil {
			return heard, err
		}
		heard = true
		r.apply(got.GetMap())
	}
}

// apply takes a map over. One replica alone is not asked directly: the given address leads to it anyway.
func (r *router) apply(m *leasev1.ShardMap) {
	members := m.GetMembers()
	if len(members) < 2 {
		members = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	owners := make([]*replica, m.GetShardCount())
	named := map[replicaID]bool{}
	for _, member := range members {
		id := replicaID{member.GetAddress(), member.GetSession()}
		if id.address == "" || id.session == 0 {
			continue // it does not offer to be asked directly
		}
		p := r.replicas[id]
		if p == nil {
			if p = r.add(id); p == nil {
				continue
			}
		}
		named[id] = true
		p.draining.Store(member.GetDraining())
		for _, shard := range member.GetShards() {
			if int(shard) < len(owners) {
				owners[shard] = p
			}
		}
	}
	r.owners = owners
	for id := range r.replicas {
		if !named[id] {
			r.drop(id)
		}
	}
}

// add begins to connect to a replica; nil: its address is none. The lock is held.
func (r *router) add(id replicaID) *replica {
	conn, err := r.dial(id.address)
	if err != nil {
		return nil
	}
	p := &replica{replicaID: id, conn: conn}
	p.ctx, p.cancel = context.WithCancel(r.ctx)
	r.replicas[id] = p
	r.wait.Go(p.keepUp)
	return p
}

// drop forgets a replica. What is under way to it fails, and is repeated elsewhere. The lock is held.
func (r *router) drop(id replicaID) {
	p := r.replicas[id]
	delete(r.replicas, id)
	p.usable.Store(false)
	p.cancel()
	_ = p.conn.Close() // it is only ever closed here, so that cannot fail
}

// keepUp keeps a connection to a replica, and knows whether it can be used.
func (p *replica) keepUp() {
	sleep(p.ctx, rand.N(dialSpread))
	for pause := retryFirst; p.ctx.Err() == nil; {
		state := p.conn.GetState()
		if state != connectivity.Ready {
			if state == connectivity.Idle {
				p.conn.Connect()
			}
			p.conn.WaitForStateChange(p.ctx, state)
			continue
		}
		if err := p.prove(); err != nil {
			sleep(p.ctx, jittered(pause))
			pause = min(2*pause, doubtMost)
			continue
		}
		pause = retryFirst
		up, cancel := context.WithCancel(p.ctx)
		p.doubt.Store(&cancel)
		p.usable.Store(true)
		p.conn.WaitForStateChange(up, connectivity.Ready)
		p.usable.Store(false)
		cancel()
	}
}

// prove asks the replica whether it is the one that is meant. What is not a replica does not know the call, one of another service
// has another session, and one of a version that does not look at that names no sessions.
func (p *replica) prove() error {
	ctx, cancel := context.WithTimeout(p.ctx, proofTimeout)
	defer cancel()
	got, err := leasev1.NewLeaseServiceClient(p.conn).GetShardMap(p.addressed(ctx), &leasev1.GetShardMapRequest{})
	if err != nil {
		return err
	}
	for _, member := range got.GetMap().GetMembers() {
		if member.GetSession() == p.session {
			return nil
		}
	}
	return fmt.Errorf("%q is not the replica it should be", p.address)
}
