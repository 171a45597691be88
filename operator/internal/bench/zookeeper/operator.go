package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/crds"
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	zktest "github.com/holdfast-io/holdfast/test/zookeeper"
)

// atRest is how long the operator is watched at rest.
const atRest = 30 * time.Second

// The intervals of audits: often, so that there are several while the operator is watched at rest; and as they are.
const (
	auditOften = 5 * time.Second
	auditUsual = 30 * time.Second
)

// measureOperator measures what needs an API server.
func measureOperator(ctx context.Context, o options, ensemble *zktest.Ensemble, r *report) error {
	ctrl.SetLogger(logr.Discard())
	env, err := testkit.Start(crds.All()...)
	if err != nil {
		return err
	}
	defer func() { _ = env.Stop() }() // the figures are taken by then
	s, err := newStand(o, env, ensemble)
	if err != nil {
		return err
	}
	// The hand is not used while the objects are created.
	pool := zookeeper.New(zookeeper.Options{AuditInterval: -1, IdleTimeout: time.Hour})
	defer func() { _ = pool.Close(context.WithoutCancel(ctx)) }()
	if s.hand, err = pool.Session(s.target); err != nil {
		return err
	}
	if err := s.createObjects(ctx, namespace); err != nil {
		return fmt.Errorf("create the objects: %w", err)
	}
	if o.has(partOperator) {
		if err := s.measureNew(ctx, r); err != nil {
			return err
		}
	}
	return s.measureRestart(ctx, ensemble.Server(0).Address(), r)
}

// measureNew starts an operator and takes the time until every znode is made and every object Ready; then the memory, and the
// writes at rest. Its peer writes to half of its objects before, and to half after.
func (s *stand) measureNew(ctx context.Context, r *report) error {
	if err := s.createObjects(ctx, peerNamespace); err != nil {
		return fmt.Errorf("create the objects of the peer: %w", err)
	}
	peers := &v1alpha1.ZooKeeperConfigList{}
	if err := s.client.List(ctx, peers, client.InNamespace(peerNamespace)); err != nil {
		return err
	}
	half := len(peers.Items) / 2
	first, err := s.writeAsPeer(ctx, peers.Items[:half])
	if err != nil {
		return err
	}
	before := heap()
	stop, err := s.operator(ctx, auditOften)
	if err != nil {
		return err
	}
	rate, err := s.follow(ctx, r)
	if err != nil {
		return err
	}
	r.add("API writes for each object", float64(s.writes.Load())/float64(s.objects), "writes")
	r.add("live GETs for each object", float64(s.gets.Load())/float64(s.objects), "requests")
	r.add("heap for 1,000 objects, cache and session included", (heap()-before)/float64(s.objects)*1000/(1<<20), "MiB")
	if err := s.rest(ctx, r, "at rest"); err != nil {
		return err
	}
	if err := stop(); err != nil {
		return err
	}
	second, err := s.writeAsPeer(ctx, peers.Items[half:])
	if err != nil {
		return err
	}
	// The time of both halves together.
	peer := 2 / (1/first + 1/second)
	r.add("bare client that makes the same requests to the API server", peer, "objects/s")
	r.add("operator against that client", rate/peer, "x")
	return nil
}

// measureRestart starts another operator on objects that are as they should be already, if one has been there.
func (s *stand) measureRestart(ctx context.Context, address string, r *report) error {
	stop, err := s.operator(ctx, auditUsual)
	if err != nil {
		return err
	}
	if s.has(partOperator) {
		err = s.rest(ctx, r, "after a restart")
	} else {
		_, err = s.follow(ctx, &report{out: io.Discard})
	}
	if err == nil && s.has(partDrift) {
		err = s.measureDrift(ctx, address, r)
	}
	return errors.Join(err, stop())
}

// follow waits for the znodes, and then for the objects, and returns how many of these became Ready a second.
//
// It asks the API server for them only when they have all been written: reading ten thousand objects takes a second, in which
// it would write hundreds.
func (s *stand) follow(ctx context.Context, r *report) (float64, error) {
	begin := time.Now()
	used, err := processorTime()
	if err != nil {
		return 0, err
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	rate := func() float64 { return float64(s.objects) / time.Since(begin).Seconds() }
	for made := false; ; {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-ticker.C:
		}
		if !made {
			parent, err := s.hand.Get(ctx, "/operator")
			if err != nil && !errors.Is(err, zookeeper.ErrNoNode) {
				return 0, fmt.Errorf("count the znodes: %w", err)
			}
			if err != nil || int(parent.Children) < s.objects {
				continue // the parent is not there yet, or not all are
			}
			made = true
			r.add("operator, from its start to the last znode", rate(), "znodes/s")
		}
		if s.writes.Load() < int64(2*s.objects) {
			continue
		}
		seen := rate()
		ready, err := s.ready(ctx)
		if err != nil {
			return 0, err
		}
		if ready == s.objects {
			r.add("operator, from its start to the last object Ready", seen, "objects/s")
			return seen, s.reportProcessors(r, used)
		}
	}
}

// reportProcessors tells what each program used since.
func (s *stand) reportProcessors(r *report, since map[string]time.Duration) error {
	used, err := processorTime()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		r.add("processor time for each object, "+name, milliseconds(used[name]-since[name])/float64(s.objects), "ms")
	}
	return nil
}

func (s *stand) ready(ctx context.Context) (int, error) {
	list := &v1alpha1.ZooKeeperConfigList{}
	if err := s.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return 0, err
	}
	count := 0
	for i := range list.Items {
		if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1alpha1.ConditionReady) {
			count++
		}
	}
	return count, nil
}

// rest counts what is written while nothing happens.
func (s *stand) rest(ctx context.Context, r *report, when string) error {
	writes := s.writes.Load()
	before, err := s.hand.Get(ctx, "/operator/n0")
	if err != nil {
		return err
	}
	select {
	case <-time.After(atRest):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := s.hand.Get(ctx, "/operator/n0")
	if err != nil {
		return err
	}
	r.add("API writes in 30 s "+when, float64(s.writes.Load()-writes), "writes")
	r.add("writes to a znode in 30 s "+when, float64(after.Version-before.Version), "writes")
	return nil
}

// heap is what is in use after a collection, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
