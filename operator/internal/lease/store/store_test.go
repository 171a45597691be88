package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/operator/internal/lease/core"
	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/store"
)

const shards = 4

type fixture struct {
	*store.Etcd
	client *clientv3.Client
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	_, client := leasetest.Etcd(t)
	etcd, err := store.NewEtcd(client, "/tenant/")
	require.NoError(t, err)
	return fixture{etcd, client}
}

// owner is a member that owns one shard.
type owner struct {
	id     store.SessionID
	cursor *store.Cursor
	shard  int
	claim  store.Claim
}

func (f fixture) owner(t *testing.T, name string, shard int) owner {
	t.Helper()
	id, _, err := f.OpenSession(t.Context(), 5*time.Second)
	require.NoError(t, err)
	cursor, err := f.Join(t.Context(), store.Member{Session: id, Name: name, Address: name + ":1"}, true)
	require.NoError(t, err)
	claim, ok, err := f.Claim(t.Context(), id, shard)
	require.NoError(t, err)
	require.True(t, ok)
	return owner{id: id, cursor: cursor, shard: shard, claim: claim}
}

func (o owner) put(name, holder string) store.BatchOp {
	return store.BatchOp{Shard: o.shard, Claim: o.claim, Op: core.Op{Name: name, Writes: []core.Write{
		{Hold: &core.Hold{Holder: holder, RequestID: holder, Mode: core.Exclusive, TTL: time.Second}},
	}}}
}

func (o owner) end(name string, token int64, reason core.EndReason) store.BatchOp {
	return store.BatchOp{Shard: o.shard, Claim: o.claim, Op: core.Op{
		Name: name, Writes: []core.Write{{}}, Ends: []core.End{{Reason: reason, Hold: core.Hold{
			Token: token, Mode: core.Exclusive, TTL: time.Second,
		}}},
	}}
}

func TestCommitAndLoad(t *testing.T) {
	f := newFixture(t)
	o := f.owner(t, "a", 1)
	first, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "one"), o.put("y", "two")})
	require.NoError(t, err)
	second, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.end("x", first, core.Released), o.put("z", "three")})
	require.NoError(t, err)
	require.Greater(t, second, first)

	require.NoError(t, f.Settle(t.Context(), o.cursor, 1, o.claim))
	records, err := f.Load(t.Context(), 1, o.claim)
	require.NoError(t, err)
	require.Len(t, records, 2)
	require.Equal(t, "y", records[0].Name)
	require.Equal(t, first, records[0].Hold.Token, "the token is the revision of the transaction")
	require.Equal(t, second, records[1].Hold.Token)
	require.Equal(t, first, records[0].Revision)
	require.Equal(t, second, records[1].Revision)
}

func TestADeposedOwnerCannotWrite(t *testing.T) {
	f := newFixture(t)
	o := f.owner(t, "a", 1)
	// A hand in the store takes the claim away, and somebody else claims the shard.
	_, err := f.client.Delete(t.Context(), "/tenant/cluster/claims/0001")
	require.NoError(t, err)
	next := f.owner(t, "b", 1)
	_, err = f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "old")})
	require.ErrorIs(t, err, store.ErrSessionLost)
	require.ErrorIs(t, f.Settle(t.Context(), o.cursor, 1, o.claim), store.ErrSessionLost)
	_, err = f.Commit(t.Context(), next.cursor, []store.BatchOp{next.put("x", "new")})
	require.NoError(t, err)

	require.NoError(t, f.EndSession(t.Context(), next.id))
	_, err = f.Commit(t.Context(), next.cursor, []store.BatchOp{next.put("x", "dead")})
	require.ErrorIs(t, err, store.ErrSessionLost)
	require.ErrorIs(t, f.KeepSession(t.Context(), next.id), store.ErrSessionLost)
	last := f.owner(t, "c", 1)
	records, err := f.Load(t.Context(), 1, last.claim)
	require.NoError(t, err)
	require.Len(t, records, 1, "leases outlive their owner's session")
	require.Equal(t, "new", records[0].Hold.Holder)
}

// Who gives a shard up goes on with the others.
func TestAShardIsHandedOver(t *testing.T) {
	f := newFixture(t)
	o := f.owner(t, "a", 1)
	token, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "one"), o.put("y", "two")})
	require.NoError(t, err)
	require.NoError(t, f.Settle(t.Context(), o.cursor, 1, o.claim))
	require.NoError(t, f.Unclaim(t.Context(), 1, o.claim))
	require.NoError(t, f.Unclaim(t.Context(), 1, o.claim), "a removal whose answer was lost is repeated")
	next := f.owner(t, "b", 1)
	records, err := f.Load(t.Context(), 1, next.claim)
	require.NoError(t, err)
	require.Len(t, records, 2)
	_, err = f.Commit(t.Context(), next.cursor, []store.BatchOp{next.end("x", token, core.Released)})
	require.NoError(t, err)
	_, err = f.Commit(t.Context(), o.cursor, nil)
	require.NoError(t, err, "the session of the owner before lives on")

	require.NoError(t, f.Settle(t.Context(), next.cursor, 1, next.claim))
	require.NoError(t, f.Unclaim(t.Context(), 1, next.claim))
	back, ok, err := f.Claim(t.Context(), o.id, 1)
	require.NoError(t, err)
	require.True(t, ok)
	records, err = f.Load(t.Context(), 1, back)
	require.NoError(t, err)
	require.Len(t, records, 1, "what the first owner wrote before it gave the shard up does not come back")
	require.Equal(t, "y", records[0].Name)
	require.Equal(t, token, records[0].Hold.Token)
}

// The journal of a dead replica is removed once all that it says is in lease keys, and not before.
func TestTheJournalsOfTheDeadAreCollected(t *testing.T) {
	f := newFixture(t)
	journals := func() int64 {
		resp, err := f.client.Get(t.Context(), "/tenant/journal/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return resp.Count
	}
	collect := func(wantCollected, wantLeft int, why string) {
		t.Helper()
		collected, left, err := f.Collect(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{wantCollected, wantLeft}, []int{collected, left}, why)
	}
	o := f.owner(t, "a", 1)
	_, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "one")})
	require.NoError(t, err)
	collect(0, 0, "it lives")
	require.NoError(t, f.EndSession(t.Context(), o.id))
	collect(0, 1, "nobody has taken its shard over")
	next := f.owner(t, "b", 1)
	collect(0, 1, "its shard is not loaded yet")
	records, err := f.Load(t.Context(), 1, next.claim)
	require.NoError(t, err)
	require.Equal(t, int64(1), journals())
	collect(1, 0, "its shard is loaded")
	require.Zero(t, journals())
	again, err := f.Load(t.Context(), 1, next.claim)
	require.NoError(t, err)
	require.Equal(t, records, again)
}

// A batch whose answer was lost is sent again. The second copy must not apply, and must yield the result of the first.
func TestABatchAppliesOnce(t *testing.T) {
	f := newFixture(t)
	o := f.owner(t, "a", 1)
	lost := *o.cursor // the cursor as it was: the answer to the first batch never arrived
	first, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "one")})
	require.NoError(t, err)
	again, err := f.Commit(t.Context(), &lost, []store.BatchOp{o.put("x", "one")})
	require.NoError(t, err)
	require.Equal(t, first, again)
}

// A copy of a batch that arrives very late, when its journal key is settled and gone, does not apply either.
func TestALateCopyFindsTheJournalSettled(t *testing.T) {
	f := newFixture(t)
	o := f.owner(t, "a", 1)
	late := *o.cursor
	token, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "one")})
	require.NoError(t, err)
	_, err = f.Commit(t.Context(), o.cursor, []store.BatchOp{o.end("x", token, core.Released)})
	require.NoError(t, err)
	first := "/tenant/journal/" + fmt.Sprintf("%016x/%016x", uint64(o.id), 1)
	for i := 0; ; i++ {
		require.Less(t, i, 10, "the journal is never settled")
		var large []store.BatchOp
		for k := range 10 {
			op := o.put(fmt.Sprintf("y/%d/%d", i, k), "two")
			op.Op.Writes[0].Hold.Value = make([]byte, 64<<10)
			large = append(large, op)
		}
		require.Len(t, large, store.Fits(large))
		_, err = f.Commit(t.Context(), o.cursor, large)
		require.NoError(t, err)
		got, err := f.client.Get(t.Context(), first)
		require.NoError(t, err)
		if len(got.Kvs) == 0 {
			break
		}
	}
	_, err = f.Commit(t.Context(), &late, []store.BatchOp{o.put("x", "one")})
	require.ErrorIs(t, err, store.ErrSessionLost)
	require.NoError(t, f.EndSession(t.Context(), o.id))
	next := f.owner(t, "b", 1)
	records, err := f.Load(t.Context(), 1, next.claim)
	require.NoError(t, err)
	for _, r := range records {
		require.NotEqual(t, "x", r.Name, "x stays released")
	}
}

// A store that has the session and not its last batch is an older state of it: nothing may be committed there, which would hide that.
func TestAStoreWithoutTheLastBatchIsAnotherOne(t *testing.T) {
	for name, next := range map[string]func(f fixture, o owner, away func()) error{
		"the session is renewed": func(f fixture, o owner, away func()) error {
			away()
			return f.KeepSession(context.Background(), o.id)
		},
		"a batch comes later": func(f fixture, o owner, away func()) error {
			away()
			o.cursor.Rest()
			_, err := f.Commit(context.Background(), o.cursor, []store.BatchOp{o.put("y", "two")})
			return err
		},
		"a batch is repeated": func(f fixture, o owner, away func()) error {
			failing, cancel := context.WithCancel(context.Background())
			cancel()
			var unknown *store.UnknownOutcomeError
			if _, err := f.Commit(failing, o.cursor, []store.BatchOp{o.put("y", "two")}); !errors.As(err, &unknown) {
				return err
			}
			away()
			_, err := f.Commit(context.Background(), o.cursor, []store.BatchOp{o.put("y", "two")})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			o := f.owner(t, "a", 1)
			_, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "one")})
			require.NoError(t, err)
			require.NoError(t, f.KeepSession(t.Context(), o.id))
			err = next(f, o, func() {
				gone, err := f.client.Delete(t.Context(), "/tenant/journal/", clientv3.WithPrefix())
				require.NoError(t, err)
				require.Positive(t, gone.Deleted)
			})
			var replaced *store.ReplacedError
			require.ErrorAs(t, err, &replaced)
			require.ErrorContains(t, err, "was a backup restored?")
			got, err := f.client.Get(t.Context(), "/tenant/journal/", clientv3.WithPrefix())
			require.NoError(t, err)
			require.Empty(t, got.Kvs)
		})
	}
}

// What is too large for etcd, or for the way there, is refused by itself, and the session goes on.
func TestABatchThatIsTooLargeIsRefusedByItself(t *testing.T) {
	server, inner := leasetest.Etcd(t)
	for how, client := range map[string]*clientv3.Client{"in process": inner, "over the network": leasetest.Client(t, server.Endpoint())} {
		for _, size := range []int{1600 << 10, 4 << 20} {
			t.Run(fmt.Sprint(size>>10, " KiB ", how), func(t *testing.T) {
				etcd, err := store.NewEtcd(client, fmt.Sprintf("/%s/%d/", how, size))
				require.NoError(t, err)
				o := fixture{etcd, client}.owner(t, "a", 1)
				large := o.put("x", "one")
				large.Op.Writes[0].Hold.Value = make([]byte, size)
				_, err = etcd.Commit(t.Context(), o.cursor, []store.BatchOp{large})
				var tooLarge *store.TooLargeError
				require.ErrorAs(t, err, &tooLarge)
				_, err = etcd.Commit(t.Context(), o.cursor, []store.BatchOp{o.put("x", "two")})
				require.NoError(t, err)
			})
		}
	}
}

func TestClaimsAreExclusiveAndRepeatable(t *testing.T) {
	f := newFixture(t)
	o := f.owner(t, "a", 1)
	again, ok, err := f.Claim(t.Context(), o.id, 1)
	require.NoError(t, err)
	require.True(t, ok, "a claim whose answer was lost is found again")
	require.Equal(t, o.claim, again)
	other, _, err := f.OpenSession(t.Context(), 5*time.Second)
	require.NoError(t, err)
	_, ok, err = f.Claim(t.Context(), other, 1)
	require.NoError(t, err)
	require.False(t, ok)
}

func TestClusterIsWatched(t *testing.T) {
	f := newFixture(t)
	n, err := f.Shards(t.Context(), shards)
	require.NoError(t, err)
	require.Equal(t, shards, n)
	n, err = f.Shards(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, shards, n, "the number of shards never changes")

	o := f.owner(t, "a", 1)
	leader, ok, err := f.Lead(t.Context(), o.id)
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = f.Assign(t.Context(), leader, []store.SessionID{0, o.id, 0, o.id})
	require.NoError(t, err)
	require.True(t, ok)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	seen := 0
	err = f.WatchCluster(ctx, shards, func(c *store.Cluster) {
		seen++
		if seen == 1 {
			member, ok := c.Owner(1)
			require.True(t, ok)
			require.Equal(t, "a:1", member.Address)
			require.Equal(t, o.id, c.Leader.Session)
			require.Equal(t, []store.SessionID{0, o.id, 0, o.id}, c.Assigned)
			require.NoError(t, f.EndSession(t.Context(), o.id))
		}
		if len(c.Members) == 0 {
			_, ok := c.Owner(1)
			require.False(t, ok)
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	ok, err = f.Assign(t.Context(), leader, make([]store.SessionID, shards))
	require.NoError(t, err)
	require.False(t, ok, "a former leader cannot assign")
}

func TestWatchAfterCompactionBeginsWithASnapshot(t *testing.T) {
	f := newFixture(t)
	name := "jobs/a"
	o := f.owner(t, "a", core.ShardOf(name, shards))
	first, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put(name, "one")})
	require.NoError(t, err)
	_, err = f.Commit(t.Context(), o.cursor, []store.BatchOp{o.end(name, first, core.Expired)})
	require.NoError(t, err)
	last, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put(name, "two")})
	require.NoError(t, err)

	watch := func(target store.Target, after int64, enough int) []store.Update {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var updates []store.Update
		err := f.Watch(ctx, shards, target, after, func(u store.Update) error {
			if updates = append(updates, u); len(updates) == enough {
				return fmt.Errorf("enough")
			}
			return nil
		})
		require.EqualError(t, err, "enough")
		return updates
	}
	for _, target := range []store.Target{{Name: name}, {Prefix: "jobs/"}} {
		var events []store.Event
		for _, u := range watch(target, first, 1) {
			events = append(events, u.Events...)
		}
		require.Equal(t, core.Expired, events[0].Ended)
		require.Equal(t, first, events[0].Hold.Token)
	}
	_, err = f.client.Compact(t.Context(), last)
	require.NoError(t, err)
	for _, target := range []store.Target{{Name: name}, {Prefix: "jobs/"}} {
		u := watch(target, first, 1)[0]
		require.NotNil(t, u.Snapshot)
		require.True(t, u.Snapshot.Compacted)
		require.True(t, u.Snapshot.Complete)
		require.GreaterOrEqual(t, u.Revision, last)
		require.Equal(t, "two", u.Snapshot.Leases[0].Holds[0].Holder)
	}
	u := watch(store.Target{Prefix: "other/"}, 0, 1)[0]
	require.Empty(t, u.Snapshot.Leases)
	require.False(t, u.Snapshot.Compacted)
}

// Watches that begin at the same time, of names whose holds are in the journal or in lease keys, each see all that was committed before.
func TestWatchesThatBeginTogether(t *testing.T) {
	f := newFixture(t)
	const names = 100
	var owners []owner
	for shard := range shards {
		owners = append(owners, f.owner(t, fmt.Sprint(shard), shard))
	}
	var group errgroup.Group
	for i := range names {
		name := fmt.Sprint("n", i)
		o := owners[core.ShardOf(name, shards)]
		token, err := f.Commit(t.Context(), o.cursor, []store.BatchOp{o.put(name, name)})
		require.NoError(t, err)
		if i%10 == 0 {
			require.NoError(t, f.Settle(t.Context(), o.cursor, o.shard, o.claim))
		}
		group.Go(func() error {
			seen := errors.New("seen")
			err := f.Watch(t.Context(), shards, store.Target{Name: name}, 0, func(u store.Update) error {
				if u.Snapshot == nil || len(u.Snapshot.Leases) != 1 || u.Snapshot.Leases[0].Holds[0].Token != token {
					return fmt.Errorf("%s: %+v does not have its token %d", name, u, token)
				}
				return seen
			})
			if errors.Is(err, seen) {
				return nil
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}

func TestFits(t *testing.T) {
	one := store.BatchOp{Op: core.Op{Name: "n", Writes: make([]core.Write, 1)}}
	ops := make([]store.BatchOp, 2*store.MaxBatchWrites)
	for i := range ops {
		ops[i] = one
	}
	require.Equal(t, store.MaxBatchWrites, store.Fits(ops))
	require.Zero(t, store.Fits(nil))
	large := store.BatchOp{Op: core.Op{Writes: []core.Write{{Hold: &core.Hold{Value: make([]byte, store.MaxBatchBytes)}}}}}
	require.Equal(t, 1, store.Fits([]store.BatchOp{large, one}), "one op always fits")
	require.Equal(t, 1, store.Fits([]store.BatchOp{one, large}))
}

func TestPrefixMustEndInASlash(t *testing.T) {
	_, err := store.NewEtcd(nil, "/tenant")
	require.EqualError(t, err, `etcd prefix "/tenant" does not end in '/'`)
}
