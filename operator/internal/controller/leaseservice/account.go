package leaseservice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/etcdadmin"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

const (
	// defaultCollectEvery is how often accounts of LeaseServices that are gone are looked for.
	defaultCollectEvery = time.Minute
	// collectTimeout bounds one look.
	collectTimeout = 30 * time.Second
	// grantTimeout bounds what is asked of etcd for one account: while it hangs, a worker of the operator waits.
	grantTimeout = 5 * time.Second
)

// account is the user of etcd that a LeaseService has from the operator.
type account struct {
	want    *desired.Login
	user    etcdadmin.Account // that want logs in as
	invalid error             // what the spec asks for is not to be had
	granted bool
	grant   func(context.Context) error
}

func (a *account) login() *desired.Login {
	if a == nil {
		return nil
	}
	return a.want
}

// account says which user of etcd a LeaseService is to have. It is nil for one that is in another etcd, or brings its own.
func (g *gatherer) account(ls *v1alpha1.LeaseService) (*account, error) {
	own := ls.Spec.Etcd != nil && ls.Spec.Etcd.AuthSecretRef != nil
	if g.keeper == nil || own || !g.keeper.Serves(ls.Spec.EtcdEndpoints) {
		return nil, nil
	}
	prefix := desired.Prefix(ls)
	if !strings.HasPrefix(prefix, desired.OwnPrefix(ls)) {
		return &account{invalid: fmt.Errorf("spec.etcd.prefix is %s; the operator keeps the users of this etcd, and gives out %s and what is below it", prefix, desired.OwnPrefix(ls))}, nil
	}
	owner := etcdadmin.Owner{Namespace: ls.Namespace, Name: ls.Name, UID: string(ls.UID)}
	want, err := g.keeper.Account(owner, prefix)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return &account{
		want:    &desired.Login{Username: want.Name, Password: want.Password, CA: g.keeper.CA()},
		user:    want,
		granted: g.granted[ls.UID] == want,
		grant: func(ctx context.Context) error {
			ask, cancel := context.WithTimeout(ctx, grantTimeout)
			defer cancel()
			if err := g.keeper.Grant(ask, owner, want); err != nil {
				return reconcile.Unknown(grantTimeout, v1alpha1.ReasonEtcdAccountFailed, "the operator cannot make the user of etcd: %s", err)
			}
			g.mu.Lock()
			defer g.mu.Unlock()
			g.granted[ls.UID] = want
			return nil
		},
	}, nil
}

// suppose takes an account for granted when the set's pods log in with it, since they were made after it was; it is confirmed
// later. Else nothing of a LeaseService could be put right after a restart of the operator while etcd is away.
func (g *gatherer) suppose(ls *v1alpha1.LeaseService, set *appsv1.StatefulSet, a *account) {
	if a == nil || a.invalid != nil || a.granted || !desired.LogsIn(set, ls) {
		return
	}
	a.granted = true
	g.mu.Lock()
	defer g.mu.Unlock()
	g.supposed[ls.UID] = a.user
}

// confirm confirms the accounts that were supposed, each once.
func (g *gatherer) confirm(ctx context.Context) error {
	g.mu.Lock()
	supposed := maps.Clone(g.supposed)
	g.mu.Unlock()
	for uid, user := range supposed {
		ask, cancel := context.WithTimeout(ctx, grantTimeout)
		err := g.keeper.Confirm(ask, user)
		cancel()
		if err != nil {
			return fmt.Errorf("confirm the account %s: %w", user.Name, err)
		}
		g.confirmed(uid, user)
	}
	return nil
}

// confirmed takes note of an account that is granted, unless its LeaseService is gone or is to have another by now.
func (g *gatherer) confirmed(uid types.UID, user etcdadmin.Account) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.supposed[uid] == user {
		delete(g.supposed, uid)
		g.granted[uid] = user
	}
}

// newKeeper reads how to administer etcd. Nil: the options name no Secret.
func newKeeper(ctx context.Context, reader client.Reader, name types.NamespacedName, issuer Issuer) (*etcdadmin.Keeper, error) {
	if name.Name == "" {
		return nil, nil
	}
	if len(issuer.Seeds) == 0 {
		return nil, errors.New("users of etcd need the seed of the certificates: their passwords are derived from it")
	}
	secret := &corev1.Secret{}
	if err := reader.Get(ctx, name, secret); err != nil {
		return nil, fmt.Errorf("the access to etcd as its administrator: %w", err)
	}
	config, err := etcdadmin.ParseConfig(secret.Data)
	if err != nil {
		return nil, fmt.Errorf("the access to etcd as its administrator, Secret %s: %w", name, err)
	}
	config.Seed, config.Installation = issuer.Seeds[0], issuer.Installation
	keeper, err := etcdadmin.NewKeeper(config)
	if err != nil {
		return nil, fmt.Errorf("the access to etcd as its administrator, Secret %s: %w", name, err)
	}
	return keeper, nil
}

// collect takes away the accounts of LeaseServices that are gone, now and then, on the operator that leads, and then calls confirm.
// It asks the API server and not a cache: what a cache does not show yet is not gone.
func collect(keeper *etcdadmin.Keeper, reader client.Reader, confirm func(context.Context) error, every time.Duration) manager.RunnableFunc {
	live := func(ctx context.Context, namespace string) ([]etcdadmin.Owner, bool, error) {
		return liveOwners(ctx, reader, namespace)
	}
	return func(ctx context.Context) error {
		log := ctrl.Log.WithName("etcd-accounts")
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			look, cancel := context.WithTimeout(ctx, collectTimeout)
			gone, err := keeper.Collect(look, live)
			if err == nil {
				err = confirm(look)
			}
			cancel()
			for _, owner := range gone {
				log.Info("took the user and the keys of a LeaseService that is gone out of etcd", "namespace", owner.Namespace, "name", owner.Name, "uid", owner.UID)
			}
			if err != nil && ctx.Err() == nil {
				log.Error(err, "accounts of etcd cannot be looked through; it is tried again", "after", every)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	}
}

// liveOwners returns the LeaseServices that there are in a namespace, watched or not, and false when that cannot be told. A
// namespace that may not be listed (it is no longer the operator's) has none once it is gone, and only then.
func liveOwners(ctx context.Context, reader client.Reader, namespace string) ([]etcdadmin.Owner, bool, error) {
	list := &v1alpha1.LeaseServiceList{}
	err := reader.List(ctx, list, client.InNamespace(namespace))
	if apierrors.IsForbidden(err) {
		err := reader.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
		if err == nil || apierrors.IsForbidden(err) {
			return nil, false, nil
		}
		return nil, apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("list the LeaseServices of namespace %s: %w", namespace, err)
	}
	owners := make([]etcdadmin.Owner, 0, len(list.Items))
	for i := range list.Items {
		owners = append(owners, etcdadmin.Owner{Namespace: namespace, Name: list.Items[i].Name, UID: string(list.Items[i].UID)})
	}
	return owners, true, nil
}
