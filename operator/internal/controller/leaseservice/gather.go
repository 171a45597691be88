package leaseservice

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/controller/leaseservice/watch"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin"
)

// Observation is what a decision about a LeaseService is made from.
type Observation struct {
	// Set is the StatefulSet, or nil when there is none that this LeaseService controls.
	Set *appsv1.StatefulSet
	// Absent tells that there is no StatefulSet of its name at all, nobody else's either.
	Absent bool
	// Pods are the set's pods, by name; those that are stopping are among them.
	Pods []*corev1.Pod
	// Reports are what the pods say of themselves, by pod name. A pod that cannot be asked yet has none.
	Reports map[string]watch.Report
	// MissingSince is when fewer pods were first seen than the set wants. Zero: none is missing.
	MissingSince time.Time
	// Certificates are those that it should have.
	Certificates material
	// Account is its user of etcd, if the operator keeps one.
	Account *account
}

// Listener hears the pods. It is *watch.Collector outside of tests.
type Listener interface {
	Observe(key types.NamespacedName, uid types.UID, targets []watch.Target) map[string]watch.Report
	Forget(key types.NamespacedName, uid types.UID)
}

// gatherer observes LeaseServices.
type gatherer struct {
	listener Listener
	settings desired.Settings
	issuer   Issuer
	keeper   *etcdadmin.Keeper // nil: the operator keeps no users of etcd
	clock    clock.PassiveClock

	mu sync.Mutex
	// granted has the accounts that were granted since the operator started, by UID.
	granted map[types.UID]etcdadmin.Account
	// supposed has the accounts that an earlier operator granted, and that are to be confirmed, by UID.
	supposed map[types.UID]etcdadmin.Account
	// secured has what is kept of LeaseServices that speak TLS, by UID.
	secured map[types.UID]*secured
	// missing has when pods were first seen missing, by UID of the LeaseService. A StatefulSet has no condition for
	// pods that it may not create (a quota, an admission policy) and no time either. After a restart of the
	// operator the time begins anew: such an object is called stalled a little later, and nothing else.
	missing map[types.UID]time.Time
}

func newGatherer(listener Listener, settings desired.Settings, issuer Issuer, clock clock.PassiveClock) *gatherer {
	return &gatherer{
		listener: listener, settings: settings, issuer: issuer, clock: clock,
		granted: map[types.UID]etcdadmin.Account{}, supposed: map[types.UID]etcdadmin.Account{},
		secured: map[types.UID]*secured{}, missing: map[types.UID]time.Time{},
	}
}

func (g *gatherer) gather(ctx context.Context, reader client.Reader, ls *v1alpha1.LeaseService) (Observation, error) {
	var observed Observation
	key := client.ObjectKeyFromObject(ls)
	var err error
	if observed.Certificates, err = g.certificates(ctx, reader, ls); err != nil {
		return observed, err
	}
	if observed.Account, err = g.account(ls); err != nil {
		return observed, err
	}
	set := &appsv1.StatefulSet{}
	err = reader.Get(ctx, types.NamespacedName{Namespace: ls.Namespace, Name: desired.StatefulSetName(ls)}, set)
	switch {
	case apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(set, ls):
		observed.Absent = err != nil
		g.listener.Observe(key, ls.UID, nil)
		return observed, g.forgetIfGone(ctx, reader, ls)
	case err != nil:
		return observed, fmt.Errorf("reading the StatefulSet: %w", err)
	}
	observed.Set = set
	g.suppose(ls, set, observed.Account)
	if observed.Pods, err = podsOf(ctx, reader, ls, set); err != nil {
		return observed, err
	}
	observed.Reports = g.listener.Observe(key, ls.UID, targets(observed.Pods, g.shownTo(ls.UID)))
	observed.MissingSince = g.missingSince(ls, set, len(observed.Pods))
	return observed, g.forgetIfGone(ctx, reader, ls)
}

// forgetIfGone closes a gap: the object may have been deleted, and forgotten, just before this pass asked about its
// pods again. Whoever of the two comes second forgets: the handler of deletions runs after the object left the cache,
// so it comes later than an Observe that was made while the object was still seen there.
func (g *gatherer) forgetIfGone(ctx context.Context, reader client.Reader, ls *v1alpha1.LeaseService) error {
	current := &v1alpha1.LeaseService{}
	err := reader.Get(ctx, client.ObjectKeyFromObject(ls), current)
	switch {
	case apierrors.IsNotFound(err) || err == nil && current.UID != ls.UID:
		g.forget(ls)
		return nil
	case err != nil:
		return fmt.Errorf("reading the LeaseService again: %w", err)
	}
	return nil
}

// forget drops what is kept in memory of an object that is gone.
func (g *gatherer) forget(ls client.Object) {
	g.listener.Forget(client.ObjectKeyFromObject(ls), ls.GetUID())
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.missing, ls.GetUID())
	delete(g.secured, ls.GetUID())
	delete(g.granted, ls.GetUID())
	delete(g.supposed, ls.GetUID())
}

func (g *gatherer) missingSince(ls *v1alpha1.LeaseService, set *appsv1.StatefulSet, pods int) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if set.Spec.Replicas == nil || pods >= int(*set.Spec.Replicas) {
		delete(g.missing, ls.UID)
		return time.Time{}
	}
	since, ok := g.missing[ls.UID]
	if !ok {
		since = g.clock.Now()
		g.missing[ls.UID] = since
	}
	return since
}

// podsOf returns the pods that the set controls, by ordinal. Labels alone do not make a pod ours: anybody who may
// create pods in the namespace could claim to lead.
func podsOf(ctx context.Context, reader client.Reader, ls *v1alpha1.LeaseService, set *appsv1.StatefulSet) ([]*corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := reader.List(ctx, list, client.InNamespace(ls.Namespace), client.MatchingLabels(desired.SelectorLabels(ls.Name))); err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], set) {
			pods = append(pods, &list.Items[i])
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return comparePodNames(a.Name, b.Name) })
	return pods, nil
}

// comparePodNames orders by ordinal: locks-2 before locks-10.
func comparePodNames(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// targets are the pods that can be asked: they run and have an address. A pod that is stopping is asked to the end,
// since it may still lead. Those that speak TLS are shown the credentials.
func targets(pods []*corev1.Pod, shown credentials.TransportCredentials) []watch.Target {
	var out []watch.Target
	for _, pod := range pods {
		if pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		target := watch.Target{
			Pod:     pod.Name,
			UID:     pod.UID,
			Address: net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(v1alpha1.LeaseServicePort)),
		}
		if desired.SpeaksTLS(pod.Labels) {
			target.Credentials = shown
		}
		out = append(out, target)
	}
	return out
}
