package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/argocd/argocdtest"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

// An operator with a release guard is ready before there is an Argo CD, and serves it once there is.
func TestReleaseGuardWaitsForArgoCD(t *testing.T) {
	c := newClient(t)
	if err := apiextensionsv1.AddToScheme(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	namespace, argo := newNamespace(t, c), newNamespace(t, c)
	conf := settings(t, namespace)
	conf.ReleaseGuard.Namespaces = []string{argo}
	all := components(conf)
	// The others run in another test, and a process has each controller once.
	o := start(t, conf, all[len(all)-1:])
	o.eventually(t, func(ctx context.Context) error {
		_, err := get(ctx, "http://"+conf.Health.BindAddress+"/readyz")
		return err
	})
	o.eventually(t, func(context.Context) error {
		if !strings.Contains(o.logs.String(), "the release guard waits until it can read Argo CD's Applications") {
			return errors.New("it does not say that it waits")
		}
		return nil
	})
	guard := &v1alpha1.ReleaseGuard{
		ObjectMeta: metav1.ObjectMeta{Namespace: argo, Name: "tenants"},
		Spec:       v1alpha1.ReleaseGuardSpec{Revision: "v1", Rings: []v1alpha1.ReleaseRing{{Name: "canary", Applications: []string{"none"}}}},
	}
	for _, obj := range []client.Object{guard, argocdtest.CRD()} {
		if err := c.Create(testkit.Context(t), obj); err != nil {
			t.Fatal(err)
		}
	}
	o.eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(guard), guard); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(guard.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonRingsInvalid {
			return fmt.Errorf("Ready is %+v", ready)
		}
		return nil
	})
	if _, err := o.stop(t); err != nil {
		t.Errorf("stopped with %v", err)
	}
	checkLogs(t, o.logs.String())
}
