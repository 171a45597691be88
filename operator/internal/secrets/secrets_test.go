package secrets_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/secrets"
)

func TestSecretsOfNoUseAreLeftOut(t *testing.T) {
	selector := secrets.ByObject().Field
	for kind, kept := range map[corev1.SecretType]bool{
		corev1.SecretTypeOpaque: true, corev1.SecretTypeBasicAuth: true, corev1.SecretTypeTLS: true,
		"helm.sh/release.v1": false, corev1.SecretTypeServiceAccountToken: false, corev1.SecretTypeDockerConfigJson: false,
	} {
		require.Equal(t, kept, selector.Matches(fields.Set{"type": string(kind)}), kind)
	}
}

func secret(change func(*corev1.Secret)) *corev1.Secret {
	out := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "s", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Data: map[string][]byte{"password": []byte("p")},
	}
	change(out)
	return out
}

func TestWhatIsKeptOfASecret(t *testing.T) {
	cases := []struct {
		name   string
		change func(*corev1.Secret)
		whole  bool
		fields int
	}{
		{"somebody else's: the data alone", func(*corev1.Secret) {}, false, 0},
		{"applied by the operator: drift is told by its fields", func(s *corev1.Secret) {
			s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{Manager: reconcile.FieldManager})
		}, true, 1},
		{"controlled by one of our objects, and stripped of our fields by somebody", func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "LeaseService", Name: "l", Controller: new(true)}}
		}, true, 0},
		{"controlled by somebody else's object", func(s *corev1.Secret) {
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "l", Controller: new(true)}}
		}, false, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := secret(c.change)
			before := in.ManagedFields
			out, err := secrets.ByObject().Transform(in)
			require.NoError(t, err)
			kept, ok := out.(*corev1.Secret)
			require.True(t, ok)
			require.Equal(t, []byte("p"), kept.Data["password"])
			require.Equal(t, c.whole, kept.Labels != nil && kept.Annotations != nil)
			require.Len(t, kept.ManagedFields, c.fields)
			require.Equal(t, "kubectl", before[0].Manager, "what others hold of the list is not written to")
		})
	}
	other := &corev1.ConfigMap{}
	out, err := secrets.ByObject().Transform(other)
	require.NoError(t, err)
	require.Same(t, other, out)
}

func TestTheComponentSpeaksForSecrets(t *testing.T) {
	core, err := component.New([]component.Component{secrets.Component()}, nil)
	require.NoError(t, err)
	all, err := core.Cache()
	require.NoError(t, err)
	require.Len(t, all, 1)
	for obj := range all {
		require.IsType(t, &corev1.Secret{}, client.Object(obj))
	}
}
