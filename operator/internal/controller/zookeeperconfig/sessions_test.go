package zookeeperconfig

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
)

// The objects of one namespace use so many sessions and no more; those of others, and those that share one, are not concerned.
func TestSessionsOfANamespace(t *testing.T) {
	w := newWorld(t)
	w.c.settings.NamespaceSessions = 2
	for _, name := range []string{"one", "two", "three"} {
		w.secret(name, name, "p")
	}
	made := map[string]*v1alpha1.ZooKeeperConfig{}
	for i, secret := range []string{"one", "two", "two", "one"} {
		name := fmt.Sprint("made-", i)
		made[name] = w.object(name, "/"+name, brings(secret))
		w.ready(made[name])
	}
	more := w.object("more", "/more", brings("three"))
	p := w.pass(more)
	var unknown *reconcile.UnknownError
	require.ErrorAs(t, p.Unready, &unknown)
	require.Contains(t, unknown.Message, "zookeeper.maxSessionsPerNamespace")
	require.Empty(t, more.Finalizers)

	elsewhere := w.object("elsewhere", "/elsewhere", brings("three"))
	elsewhere.Namespace = "another"
	w.ready(elsewhere)
	require.True(t, w.remove(made["made-1"]))
	require.Error(t, w.pass(more).Unready, "another object still uses that session")
	made["made-2"].Spec.Connection.AuthSecretRef.Name = "one"
	w.ready(made["made-2"])
	w.ready(more)
}

// The operator's own session counts for nobody.
func TestTheOwnSessionIsNobodys(t *testing.T) {
	w := newWorld(t)
	w.c.settings.NamespaceSessions = 1
	w.secret("one", "one", "p")
	w.ready(w.object("brings", "/brings", brings("one")))
	w.ready(w.object("relies", "/relies"))
}
