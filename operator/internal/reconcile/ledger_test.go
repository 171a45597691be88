package reconcile

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestLedger(t *testing.T) {
	owner := types.NamespacedName{Namespace: "n", Name: "owner"}
	key := objectKey{kind: schema.GroupKind{Kind: "ConfigMap"}, name: types.NamespacedName{Namespace: "n", Name: "child"}}
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	at := func(version string, change ...func(*corev1.ConfigMap)) client.Object {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: version}}
		for _, c := range change {
			c(obj)
		}
		return obj
	}
	going := func(obj *corev1.ConfigMap) { obj.DeletionTimestamp = &metav1.Time{Time: noon} }
	other := func(obj *corev1.ConfigMap) { obj.UID = "other" }
	wrote := func(version string) func(*ledger) {
		return func(l *ledger) { l.wrote(owner, key, version, noon) }
	}
	deleted := func(l *ledger) { l.deleted(owner, key, "u", noon) }
	released := func(l *ledger) { l.released(owner, key, "u", noon) }
	cases := []struct {
		name   string
		write  func(*ledger)
		cached client.Object
		after  time.Duration
		want   bool
	}{
		{"nothing written", func(*ledger) {}, at("1"), 0, false},
		{"the cache is older", wrote("10"), at("9"), 0, true},
		{"the cache has it", wrote("10"), at("10"), 0, false},
		{"the cache is newer", wrote("10"), at("11"), 0, false},
		{"versions are numbers and no texts", wrote("100"), at("99"), 0, true},
		{"made, and not in the cache", wrote("10"), nil, 0, true},
		{"made, and not in the cache for long", wrote("10"), nil, catchUp, false},
		{"versions that cannot be compared", wrote("x"), at("9"), 0, false},
		{"deleted, and in the cache", deleted, at("9"), 0, true},
		{"deleted, and in the cache for long", deleted, at("9"), catchUp, false},
		{"deleted, and going in the cache", deleted, at("9", going), 0, false},
		{"deleted, and gone in the cache", deleted, nil, 0, false},
		{"deleted, and another in the cache", deleted, at("12", other), 0, false},
		{"released, and going in the cache", released, at("9", going), 0, true},
		{"released, and gone in the cache", released, nil, 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newLedger()
			c.write(l)
			if got := l.behind(owner, key, c.cached, noon.Add(c.after)); got != c.want {
				t.Errorf("behind is %t, want %t", got, c.want)
			}
			if left := len(l.pending(owner)); (left > 0) != c.want {
				t.Errorf("%d entries are left", left)
			}
		})
	}
	l := newLedger()
	l.wrote(owner, key, "10", noon)
	l.forget(owner)
	if len(l.writes) != 0 {
		t.Error("an owner that is gone is remembered")
	}
}
