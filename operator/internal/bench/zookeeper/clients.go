package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// payload is the data of each znode: the size of a small rule.
var payload = make([]byte, 200)

var credential = zookeeper.Credential{User: "operator", Password: "bench"}

// side makes one znode, and sees that it is watched.
type side struct {
	name string
	make func(ctx context.Context, path string) error
}

// compareClients makes znodes by our sessions and by bare clients, in turn.
//
// The bare client that does the same work creates the znode and then reads data and list with a watch: whoever keeps a
// znode has to know what is there. So has whoever must not overwrite what somebody else made, before he creates it. One that only
// creates is measured as well, as the most that the server can do.
func compareClients(ctx context.Context, o options, ensemble *zktest.Ensemble, r *report) error {
	conn, err := bareClient(ctx, ensemble.Server(0).Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	pool := zookeeper.New(zookeeper.Options{AuditInterval: -1, MaxInFlight: o.workers})
	defer func() { _ = pool.Close(context.WithoutCancel(ctx)) }()
	session, err := openSession(pool, ensemble.ConnectString())
	if err != nil {
		return err
	}
	own := []zktypes.ACL{{Scheme: zktypes.SchemeDigest, ID: zktypes.DigestID(credential.User, credential.Password), Perms: zktypes.PermAll}}
	sides := append(bareSides(conn), side{"session, look, create and keep watched", func(ctx context.Context, path string) error {
		if _, err := session.Observe(ctx, path, zookeeper.Subscription{Key: path, Notify: func() {}}); err != nil {
			return err
		}
		_, err := session.Create(ctx, path, path, payload, own)
		return err
	}})
	rates, costs := map[string][]float64{}, map[string]time.Duration{}
	// The first round is not counted: a server that has just been started compiles what it runs for the first time.
	for round := range o.rounds + 1 {
		for i, each := range sides {
			root := fmt.Sprintf("/bench-%d-%d", round, i)
			if err := session.EnsureParents(ctx, root+"/x", own); err != nil {
				return err
			}
			rate, cost, err := drive(ctx, o, root, each.make)
			if err != nil {
				return fmt.Errorf("%s: %w", each.name, err)
			}
			if round > 0 {
				rates[each.name] = append(rates[each.name], rate)
				costs[each.name] += cost
			}
		}
	}
	for _, each := range sides {
		r.add(each.name, median(rates[each.name]), "znodes/s")
	}
	for _, each := range sides {
		cost := costs[each.name].Seconds() * 1e6 / float64(o.rounds*o.objects)
		r.add("processor time for each znode, client and server: "+each.name, cost, "µs")
	}
	rate := median(rates[sides[3].name])
	r.add("session against bare that looks first", rate/median(rates[sides[2].name]), "x")
	r.add("session against bare that does not look", rate/median(rates[sides[1].name]), "x")
	r.add("session against bare that only creates", rate/median(rates[sides[0].name]), "x")
	return nil
}

// bareSides are what a bare client may do.
func bareSides(conn *zk.Conn) []side {
	bare := zk.DigestACL(zk.PermAll, credential.User, credential.Password)
	return []side{
		{"bare, create", func(_ context.Context, path string) error {
			_, err := conn.Create(path, payload, 0, bare)
			return err
		}},
		{"bare, create and read with a watch", func(_ context.Context, path string) error {
			if _, err := conn.Create(path, payload, 0, bare); err != nil {
				return err
			}
			if _, _, _, err := conn.GetW(path); err != nil {
				return err
			}
			_, _, err := conn.GetACL(path)
			return err
		}},
		{"bare, look, create and read with a watch", func(_ context.Context, path string) error {
			if _, _, _, err := conn.ExistsW(path); err != nil {
				return err
			}
			if _, err := conn.Create(path, payload, 0, bare); err != nil {
				return err
			}
			if _, _, _, err := conn.GetW(path); err != nil {
				return err
			}
			_, _, err := conn.GetACL(path)
			return err
		}},
	}
}

// bareClient is a client of the library, with the same credential as the operator.
func bareClient(ctx context.Context, address string) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{address}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	if err = established(ctx, events); err == nil {
		err = conn.AddAuth("digest", []byte(credential.User+":"+credential.Password))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func established(ctx context.Context, events <-chan zk.Event) error {
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func openSession(pool *zookeeper.Pool, connect string) (*zookeeper.Session, error) {
	parsed, err := zktypes.ParseConnectString(connect)
	if err != nil {
		return nil, err
	}
	return pool.Session(zookeeper.Target{Connect: parsed, Credential: credential})
}

// drive makes all znodes of a round, and returns how many a second, and the processor time that they took.
func drive(ctx context.Context, o options, root string, one func(context.Context, string) error) (float64, time.Duration, error) {
	before, err := processorTime()
	if err != nil {
		return 0, 0, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.workers)
	begin := time.Now()
	for i := range o.objects {
		group.Go(func() error { return one(ctx, fmt.Sprintf("%s/n%d", root, i)) })
	}
	if err := group.Wait(); err != nil {
		return 0, 0, err
	}
	rate := float64(o.objects) / time.Since(begin).Seconds()
	after, err := processorTime()
	var cost time.Duration
	for name := range after {
		cost += after[name] - before[name]
	}
	return rate, cost, err
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
