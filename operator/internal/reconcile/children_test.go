package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var ownerKind = schema.GroupKind{Kind: "ReplicationController"}

// anOwner is an object of a built-in kind that serves as owner.
func anOwner() *corev1.ReplicationController {
	return &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "owner", UID: "owner-uid"}}
}

type fixture func(*corev1.ConfigMap)

func controlledByUID(kind, name, uid string) fixture {
	return func(c *corev1.ConfigMap) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}}
	}
}

func applied(manager string) fixture {
	return func(c *corev1.ConfigMap) {
		c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(`{}`),
		})
	}
}

func goingAway(c *corev1.ConfigMap) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func child(name string, fixtures ...fixture) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), ResourceVersion: "7"}}
	for _, f := range fixtures {
		f(c)
	}
	return c
}

func ours(c *corev1.ConfigMap) { controlledByUID("ReplicationController", "owner", "owner-uid")(c) }

func TestClaims(t *testing.T) {
	cases := []struct {
		name string
		live client.Object
		want claim
	}{
		{"none", nil, claimAbsent},
		{"controlled by the owner", child("a", ours), claimOurs},
		{"controlled by the owner, and going", child("a", ours, goingAway), claimLeaving},
		{"of nobody, applied by us", child("a", applied(FieldManager)), claimOrphan},
		{"of nobody, applied by us, and going", child("a", applied(FieldManager), goingAway), claimLeaving},
		{"of nobody, applied by another", child("a", applied("kubectl")), claimForeign},
		{"of nobody", child("a"), claimForeign},
		{"of an earlier owner of the name", child("a", controlledByUID("ReplicationController", "owner", "older")), claimPredecessor},
		{"of another owner of the kind", child("a", controlledByUID("ReplicationController", "other", "older"), applied(FieldManager)), claimForeign},
		{"of another kind with the owner's name", child("a", controlledByUID("Pod", "owner", "older"), applied(FieldManager)), claimForeign},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := claimOf(anOwner(), ownerKind, c.live); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	desired := func(names ...string) []client.Object {
		var list []client.Object
		for _, name := range names {
			list = append(list, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}})
		}
		return list
	}
	cases := []struct {
		name    string
		desired []client.Object
		live    []*corev1.ConfigMap
		prune   bool
		want    string
		says    string // of the error
	}{
		{"what is missing is made, in order", desired("b", "a"), nil, true, "create b, create a", ""},
		{"what was never applied is applied", desired("a"), []*corev1.ConfigMap{child("a", ours)}, true, "update a", ""},
		{"what is superfluous goes", desired(), []*corev1.ConfigMap{child("b", ours), child("a", ours)}, true, "delete a, delete b", ""},
		{"nothing goes unless it is to be pruned", desired(), []*corev1.ConfigMap{child("a", ours)}, false, "", ""},
		{"what is going is not deleted again", desired(), []*corev1.ConfigMap{child("a", ours, goingAway)}, true, "", ""},
		{"others' objects never go", desired(), []*corev1.ConfigMap{child("a"), child("b", controlledByUID("Pod", "p", "x")), child("c", applied(FieldManager))}, true, "", ""},
		{"a foreign object stops everything", desired("a", "b"), []*corev1.ConfigMap{child("b"), child("c", ours)}, true, "", "ConfigMap b exists and was not made by this operator: delete it"},
		{"a foreign object's owner is named", desired("a"), []*corev1.ConfigMap{child("a", controlledByUID("Pod", "p", "x"))}, true, "", "is controlled by Pod p"},
		{"the others go on while one is going", desired("a", "b"), []*corev1.ConfigMap{child("a", ours, goingAway)}, true, "create b", "ConfigMap a is being deleted"},
		{"a predecessor's child is waited for", desired("a"), []*corev1.ConfigMap{child("a", controlledByUID("ReplicationController", "owner", "older"))}, true, "", "not garbage collected yet"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			intents, err := intentsOf(anOwner(), c.desired, clientgoscheme.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
			found := children{live: map[objectKey]client.Object{}, prune: map[schema.GroupKind]bool{gvk.GroupKind(): c.prune}}
			for _, live := range c.live {
				found.live[keyOf(gvk, live)] = live
			}
			changes, err := changesOf(anOwner(), ownerKind, intents, found, clientgoscheme.Scheme)
			var got []string
			for _, change := range changes {
				got = append(got, fmt.Sprintf("%s %s", change.verb, change.key.name.Name))
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
			if (c.says == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got the error %v, want one with %q", err, c.says)
			}
		})
	}
}

func TestConflictIsStalledAndLookedAtAgain(t *testing.T) {
	intents, err := intentsOf(anOwner(), []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}}, clientgoscheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	foreign := child("a")
	_, err = changesOf(anOwner(), ownerKind, intents, children{live: map[objectKey]client.Object{keyOf(gvk, foreign): foreign}}, clientgoscheme.Scheme)
	var stalled *StalledError
	if !errors.As(err, &stalled) || stalled.Reason != "Conflict" || stalled.After != conflictRecheck {
		t.Errorf("got %#v", err)
	}
}

func TestIntent(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "p", UID: "u", ResourceVersion: "3", Generation: 4, CreationTimestamp: metav1.Now(),
			Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	intent, err := intentOf(pod, clientgoscheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	meta, _ := intent.Object["metadata"].(map[string]any)
	if len(meta) != 4 || meta["name"] != "p" || meta["namespace"] != "n" || meta["labels"] == nil || meta["finalizers"] == nil {
		t.Errorf("metadata is %v", meta)
	}
	if intent.Object["status"] != nil || intent.GetKind() != "Pod" || intent.GetAPIVersion() != "v1" {
		t.Errorf("got %v", intent.Object)
	}
	if pod.Status.Phase != corev1.PodRunning || pod.UID != "u" {
		t.Error("the desired object was changed")
	}
}

func TestTwoChildrenOfOneNameAreAFault(t *testing.T) {
	twin := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}
	if _, err := intentsOf(anOwner(), []client.Object{twin, twin.DeepCopy()}, clientgoscheme.Scheme); err == nil || !strings.Contains(err.Error(), "two children ConfigMap n/a") {
		t.Errorf("got %v", err)
	}
}

func TestChildrenOfOtherNamespacesAreAFault(t *testing.T) {
	stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "a"}}
	if _, err := intentsOf(anOwner(), []client.Object{stray}, clientgoscheme.Scheme); err == nil || !strings.Contains(err.Error(), "cross-namespace") {
		t.Errorf("got %v", err)
	}
}

func TestTrim(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	trim := Trim(scheme, "dist.system")
	do := func(c *corev1.ConfigMap) *corev1.ConfigMap {
		c.Data = map[string]string{"much": "text"}
		c.Annotations = map[string]string{"a": "b"}
		out, err := trim(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := trim(out)
		if err != nil || again.(*corev1.ConfigMap).UID != c.UID {
			t.Errorf("a second time: %v, %v", again, err)
		}
		return again.(*corev1.ConfigMap)
	}
	controlled := func(c *corev1.ConfigMap) {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "dist.system/v1alpha1", Kind: "LeaseService", Name: "l", UID: "l", Controller: new(true)}}
	}
	if got := do(child("a", controlled, applied("kubectl"))); got.Data == nil || len(got.ManagedFields) != 0 {
		t.Errorf("a child of one of our kinds: %v", got)
	}
	if got := do(child("a", applied("kubectl"), applied(FieldManager))); got.Data == nil || len(got.ManagedFields) != 1 || got.ManagedFields[0].Manager != FieldManager {
		t.Errorf("an orphan of ours: %v", got)
	}
	foreign := do(child("a", applied("kubectl"), controlledByUID("Pod", "p", "x")))
	if foreign.Data != nil || foreign.Annotations != nil || len(foreign.ManagedFields) != 0 {
		t.Errorf("too much of a foreign object is kept: %v", foreign)
	}
	if claimOf(anOwner(), ownerKind, foreign) != claimForeign || foreign.Name != "a" || foreign.ResourceVersion != "7" {
		t.Errorf("too little of a foreign object is kept: %v", foreign)
	}
}
