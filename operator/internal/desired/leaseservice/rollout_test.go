package leaseservice_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

// byDefault is a LeaseService that takes the operator's image.
func byDefault(ls *v1alpha1.LeaseService) { ls.Spec.Image = "" }

func setOf(t *testing.T, ls *v1alpha1.LeaseService, image string) *appsv1.StatefulSet {
	t.Helper()
	with := settings
	with.DefaultImage = image
	set, err := desired.StatefulSet(ls, with, nil)
	require.NoError(t, err)
	return set
}

// applied is the StatefulSet that an operator with a default image left behind.
func applied(t *testing.T, ls *v1alpha1.LeaseService, image string) *appsv1.StatefulSet {
	t.Helper()
	set := setOf(t, ls, image)
	pending, err := desired.Settle(ls, set, nil, never)
	require.NoError(t, err)
	require.Nil(t, pending)
	return set
}

func never(desired.Pending) bool { return false }

func imageOf(set *appsv1.StatefulSet) string { return set.Spec.Template.Spec.Containers[0].Image }

func TestAChangeOfTheOperatorsIsKeptUntilItIsAllowed(t *testing.T) {
	ls := known(byDefault)
	live := applied(t, ls, "lease-service:v1")
	want := setOf(t, ls, "lease-service:v2")
	pending, err := desired.Settle(ls, want, live, never)
	require.NoError(t, err)
	require.Equal(t, "the image from lease-service:v1 to lease-service:v2", pending.What)
	require.Equal(t, live.Spec.Template, want.Spec.Template)
	require.True(t, maps.Equal(live.Annotations, want.Annotations), "what is kept is what was applied, again and again")

	third := setOf(t, ls, "lease-service:v3")
	other, err := desired.Settle(ls, third, live, func(p desired.Pending) bool { return p.ID == pending.ID })
	require.NoError(t, err)
	require.NotNil(t, other, "an approval is of one change alone")

	want = setOf(t, ls, "lease-service:v2")
	kept, err := desired.Settle(ls, want, live, func(p desired.Pending) bool { return p.ID == pending.ID })
	require.NoError(t, err)
	require.Nil(t, kept)
	require.Equal(t, "lease-service:v2", imageOf(want))
	again := setOf(t, ls, "lease-service:v2")
	kept, err = desired.Settle(ls, again, want, never)
	require.NoError(t, err)
	require.Nil(t, kept, "once it is applied, no approval is needed any more")
}

func TestWhatIsKeptIsScaledAndPutRight(t *testing.T) {
	ls := known(byDefault)
	live := applied(t, ls, "lease-service:v1")
	live.Spec.Template.Spec.Containers[0].Image = "edited:by-hand"
	ls.Spec.Replicas = 5
	want := setOf(t, ls, "lease-service:v2")
	pending, err := desired.Settle(ls, want, live, never)
	require.NoError(t, err)
	require.NotNil(t, pending)
	require.Equal(t, "lease-service:v1", imageOf(want))
	require.EqualValues(t, 5, *want.Spec.Replicas)
}

func TestAChangeOfTheSpecTakesTheOperatorsAlong(t *testing.T) {
	live := applied(t, known(byDefault), "lease-service:v1")
	ls := known(byDefault, func(ls *v1alpha1.LeaseService) { ls.Spec.LeaseTTLSeconds = 77 })
	want := setOf(t, ls, "lease-service:v2")
	pending, err := desired.Settle(ls, want, live, never)
	require.NoError(t, err)
	require.Nil(t, pending)
	require.Equal(t, "lease-service:v2", imageOf(want))
	require.Contains(t, want.Spec.Template.Spec.Containers[0].Args, "--lease-ttl=77s")
}

func TestASpoiltOrMissingAnnotationKeepsNothing(t *testing.T) {
	ls := known(byDefault)
	for _, content := range []string{"", "{", "{}"} {
		live := applied(t, ls, "lease-service:v1")
		for name := range live.Annotations {
			live.Annotations[name] = content
		}
		want := setOf(t, ls, "lease-service:v2")
		pending, err := desired.Settle(ls, want, live, never)
		require.NoError(t, err)
		require.Nil(t, pending)
		require.Equal(t, "lease-service:v2", imageOf(want))
	}
}

// Every field of the spec either makes another template, and is then a change of the spec's, or makes none, and is then no
// reason to let a change of the operator's through.
func TestFieldsOfTheSpecAndTheTemplate(t *testing.T) {
	changes := map[string]change{
		"Replicas":      func(ls *v1alpha1.LeaseService) { ls.Spec.Replicas = 2 },
		"EtcdEndpoints": func(ls *v1alpha1.LeaseService) { ls.Spec.EtcdEndpoints = []string{"http://other:2379"} },
		"Etcd":          func(ls *v1alpha1.LeaseService) { ls.Spec.Etcd = &v1alpha1.LeaseServiceEtcd{Prefix: "/a/"} },
		"TLS":           managed,
		"Auth": func(ls *v1alpha1.LeaseService) {
			managed(ls)
			ls.Spec.Auth = &v1alpha1.LeaseServiceAuth{TokenReview: true}
		},
		"LeaseTTLSeconds": func(ls *v1alpha1.LeaseService) { ls.Spec.LeaseTTLSeconds = 5 },
		"Limits":          func(ls *v1alpha1.LeaseService) { ls.Spec.Limits = &v1alpha1.LeaseServiceLimits{Leases: 5} },
		"Image":           func(ls *v1alpha1.LeaseService) { ls.Spec.Image = "a:1" },
		"ImagePullSecrets": func(ls *v1alpha1.LeaseService) {
			ls.Spec.ImagePullSecrets = []v1alpha1.LeaseServiceSecretReference{{Name: "r"}}
		},
		"Resources": func(ls *v1alpha1.LeaseService) { ls.Spec.Resources.Requests = nil },
		"Storage": func(ls *v1alpha1.LeaseService) {
			ls.Spec.Storage = &v1alpha1.LeaseServiceStorage{Size: resource.MustParse("3Gi")}
		},
		"Scheduling": func(ls *v1alpha1.LeaseService) {
			ls.Spec.Scheduling = &v1alpha1.LeaseServiceScheduling{PriorityClassName: "high"}
		},
		"NetworkPolicy": func(ls *v1alpha1.LeaseService) { ls.Spec.NetworkPolicy = v1alpha1.NetworkPolicyNone },
		"AllowedClients": func(ls *v1alpha1.LeaseService) {
			ls.Spec.AllowedClients = []v1alpha1.LeaseServiceClient{{PodSelector: &metav1.LabelSelector{}}}
		},
		"ProgressDeadlineSeconds": func(ls *v1alpha1.LeaseService) { ls.Spec.ProgressDeadlineSeconds = 5 },
		"Rollouts": func(ls *v1alpha1.LeaseService) {
			ls.Spec.Rollouts = &v1alpha1.LeaseServiceRollouts{OperatorChanges: v1alpha1.OperatorChangesApprove}
		},
		"Paused": func(ls *v1alpha1.LeaseService) { ls.Spec.Paused = true },
	}
	var fields []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.LeaseServiceSpec]()) {
		fields = append(fields, field.Name)
		if changes[field.Name] == nil {
			t.Errorf("the test knows no change of spec field %s", field.Name)
		}
	}
	require.Len(t, changes, len(fields))
	without := []string{"Replicas", "Storage", "NetworkPolicy", "AllowedClients", "ProgressDeadlineSeconds", "Rollouts", "Paused"}
	for name, apply := range changes {
		t.Run(name, func(t *testing.T) {
			plain, changed := known(byDefault), known(byDefault, apply)
			same := reflect.DeepEqual(setOf(t, plain, "v1").Spec.Template, setOf(t, changed, "v1").Spec.Template)
			require.Equal(t, slices.Contains(without, name), same)
			want := setOf(t, changed, "v2")
			pending, err := desired.Settle(changed, want, applied(t, plain, "v1"), never)
			require.NoError(t, err)
			require.Equal(t, same, pending != nil)
		})
	}
}
