package acceptance_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

func mine() []zktypes.ACL { return []zktypes.ACL{digest(operatorCredential, "cdrwa")} }

// Drift is put right by watch alone: there is no audit in this operator, and nothing resyncs. The figures are of one run
// on one machine, the two sides in turn; the bound that must hold is the generous one.
func TestDriftIsCorrectedAtOnce(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.create(f.object("watched", "/watched", "declared"))
	f.ready("watched")
	require.NoError(t, f.hand.EnsureParents(f.ctx, "/raw", mine()))
	_, err := f.hand.Create(f.ctx, "", "/raw", nil, mine())
	require.NoError(t, err)

	const rounds = 100
	var corrected, raw []time.Duration
	for i := range rounds {
		begin := time.Now()
		_, err := f.hand.Set(f.ctx, "", "/raw", fmt.Append(nil, i), -1)
		require.NoError(t, err)
		_, err = f.hand.Get(f.ctx, "/raw")
		require.NoError(t, err)
		raw = append(raw, time.Since(begin))

		begin = time.Now()
		_, err = f.hand.Set(f.ctx, "", "/watched", fmt.Append(nil, "by hand ", i), -1)
		require.NoError(t, err)
		for {
			content, err := f.hand.Get(f.ctx, "/watched")
			require.NoError(t, err)
			if string(content.Value) == "declared" {
				break
			}
			require.Less(t, time.Since(begin), 30*time.Second)
		}
		corrected = append(corrected, time.Since(begin))
	}
	slices.Sort(corrected)
	slices.Sort(raw)
	at := func(list []time.Duration, percent int) time.Duration { return list[len(list)*percent/100] }
	t.Logf("corrected: p50 %s, p99 %s; a raw set and get: p50 %s, p99 %s",
		at(corrected, 50), at(corrected, 99), at(raw, 50), at(raw, 99))
	require.Less(t, at(corrected, 50), 100*time.Millisecond)
	obj := f.ready("watched")
	require.EqualValues(t, 2*rounds, f.znode("/watched").Version, "one write for each change by hand")
	f.eventually("the record follows", func() bool { return f.get("watched").Status.Znode.Version == 2*rounds })
	require.NotNil(t, obj.Status.LastSyncedTime)
}

func TestDriftOfEveryKind(t *testing.T) {
	audited := func(o *operatorOptions) { o.pool.AuditInterval = 50 * time.Millisecond }
	f := start(t, shared.ConnectString(), audited)
	f.create(f.object("x", "/x", "declared"))
	f.ready("x")

	require.NoError(t, f.hand.Delete(f.ctx, "", "/x", -1))
	f.holds("/x", "declared")

	// No watch fires on a list: the audit sees it.
	_, err := f.hand.SetACL(f.ctx, "", "/x", append(mine(), zktypes.ACL{Scheme: "world", ID: "anyone", Perms: zktypes.PermRead}), -1)
	require.NoError(t, err)
	f.eventually("the list is put right", func() bool { return zktypes.EqualACL(mine(), f.znode("/x").ACL) })

	// Deleted and created again by hand, with other content: it is the object's path.
	require.NoError(t, f.hand.Delete(f.ctx, "", "/x", -1))
	_, err = f.hand.Create(f.ctx, "", "/x", []byte("by hand"), mine())
	if err != nil {
		require.ErrorIs(t, err, zookeeper.ErrNodeExists, "the operator was quicker")
	}
	f.holds("/x", "declared")
	// Equal events are counted together, at leisure.
	f.eventually("an event", func() bool { return f.events("x")[v1alpha1.ReasonDriftCorrected] >= 1 })
	f.ready("x")
	f.remove("x")
	f.gone("x")
	f.absent("/x")
}

func TestDriftIsReported(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.create(f.object("x", "/x", "declared", func(s *spec) { s.DriftPolicy = v1alpha1.DriftReport }))
	f.ready("x")
	_, err := f.hand.Set(f.ctx, "", "/x", []byte("hot fix "+planted), 0)
	require.NoError(t, err)
	obj := f.not("x", v1alpha1.ReasonDrifted)
	require.Equal(t, v1alpha1.ZnodeOutOfSync, obj.Status.State)
	require.Contains(t, obj.Status.Drift, fmt.Sprintf("%d bytes", len("hot fix "+planted)))
	require.NotContains(t, obj.Status.Drift, planted)

	// Declaring what is there ends it, and so does putting it back.
	f.edit("x", text("hot fix "+planted))
	f.ready("x")
	require.EqualValues(t, 1, f.znode("/x").Version, "nothing was written")
	// An edit of the object is still carried out.
	f.edit("x", text("next"))
	f.ready("x")
	f.holds("/x", "next")

	require.NoError(t, f.hand.Delete(f.ctx, "", "/x", -1))
	f.not("x", v1alpha1.ReasonDrifted)
	f.absent("/x")
	f.edit("x", func(s *spec) { s.DriftPolicy = v1alpha1.DriftCorrect })
	f.ready("x")
	f.holds("/x", "next")
}

// Somebody who deletes and creates again keeps what he made when the object goes.
func TestDeletionLeavesTheZnodeOfSomebodyElse(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.create(f.object("x", "/x", "declared", func(s *spec) { s.DriftPolicy = v1alpha1.DriftReport }))
	f.ready("x")
	require.NoError(t, f.hand.Delete(f.ctx, "", "/x", -1))
	f.not("x", v1alpha1.ReasonDrifted)
	_, err := f.hand.Create(f.ctx, "", "/x", []byte("by hand"), mine())
	require.NoError(t, err)
	f.remove("x")
	f.gone("x")
	require.Equal(t, "by hand", string(f.znode("/x").Value))
}

// At rest nothing is written to either side, whatever wakes the operator: a restart, for one.
func TestRest(t *testing.T) {
	f := start(t, shared.ConnectString())
	const count = 20
	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	for i := range count {
		f.create(f.object(name(i), "/rest/"+name(i), name(i)))
	}
	versions := map[string]string{}
	for i := range count {
		f.ready(name(i))
	}
	for i := range count {
		versions[name(i)] = f.get(name(i)).ResourceVersion
	}
	before := f.znode("/rest")
	f.stop()
	f.run()
	// An edit of one more object is carried out after all others were looked at.
	f.create(f.object("last", "/last", "v"))
	f.ready("last")
	f.eventually("all are watched again", func() bool { return f.metric("holdfast_zookeeper_watched_znodes") == count+1 })
	for i := range count {
		require.Equal(t, versions[name(i)], f.get(name(i)).ResourceVersion)
		require.Zero(t, f.znode("/rest/"+name(i)).Version)
	}
	require.Equal(t, before.Mzxid, f.znode("/rest").Mzxid)
	require.Equal(t, 1, f.count("create"), "the one znode of the last object")
	require.Zero(t, f.count("set")+f.count("setACL")+f.count("delete"))
}

// No secret is ever shown: not in logs, events, or any part of an object.
func TestSecretsAreNotShown(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.secret("source", map[string]string{"value": planted, "username": "app", "password": planted})
	f.create(f.object("x", "/x", "", func(s *spec) {
		s.StringData = nil
		s.DataFrom = &v1alpha1.ZnodeDataSource{SecretKeyRef: &v1alpha1.ObjectKeyReference{Name: "source", Key: "value"}}
		s.ACL = []v1alpha1.ZnodeACL{
			{Scheme: "digest", ID: digest(operatorCredential, "a").ID, Perms: "cdrwa"},
			{Scheme: "digest", SecretRef: &v1alpha1.ObjectReference{Name: "source"}, Perms: "r"},
		}
	}))
	f.ready("x")
	hash := digest(zookeeper.Credential{User: "app", Password: planted}, "r").ID[len("app:"):]
	_, err := f.hand.Set(f.ctx, "", "/x", []byte("leaked "+planted), 0)
	require.NoError(t, err)
	f.holds("/x", planted)
	f.edit("x", func(s *spec) { s.DriftPolicy = v1alpha1.DriftReport })
	f.ready("x")
	_, err = f.hand.SetACL(f.ctx, "", "/x", mine(), -1)
	require.NoError(t, err)
	_, err = f.hand.Set(f.ctx, "", "/x", []byte("leaked "+planted), -1)
	require.NoError(t, err)
	f.not("x", v1alpha1.ReasonDrifted)
	f.secret("broken", map[string]string{"username": "a:" + planted, "password": planted})
	f.create(f.object("broken", "/broken", "v", func(s *spec) {
		s.Connection = &v1alpha1.ZooKeeperConnection{ConnectString: f.connect, AuthSecretRef: &v1alpha1.ObjectReference{Name: "broken"}}
	}))
	f.not("broken", v1alpha1.ReasonInvalidSpec)

	for _, kind := range []string{"ZooKeeperConfig", "Event"} {
		list := &unstructured.UnstructuredList{}
		version := map[string]string{"ZooKeeperConfig": "dist.system/v1alpha1", "Event": "events.k8s.io/v1"}[kind]
		list.SetAPIVersion(version)
		list.SetKind(kind + "List")
		require.NoError(t, f.client.List(f.ctx, list))
		content, err := list.MarshalJSON()
		require.NoError(t, err)
		require.NotContains(t, string(content), planted, kind)
		require.NotContains(t, string(content), hash, kind)
	}
	require.NotEmpty(t, f.logs.String())
	require.NotContains(t, f.logs.String(), planted)
	require.NotContains(t, f.logs.String(), hash)
}
