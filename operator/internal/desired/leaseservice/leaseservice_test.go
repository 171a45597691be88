package leaseservice_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/certs"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

var update = flag.Bool("update", false, "write the golden files anew")

type change func(*v1alpha1.LeaseService)

// known is the manifest that the project promises to accept as it stands, with the schema's defaults applied.
func known(changes ...change) *v1alpha1.LeaseService {
	ls := &v1alpha1.LeaseService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "locks"},
		Spec: v1alpha1.LeaseServiceSpec{
			Replicas:        3,
			EtcdEndpoints:   []string{"http://etcd-cluster:2379"},
			LeaseTTLSeconds: 30,
			TLS:             &v1alpha1.LeaseServiceTLS{Mode: v1alpha1.TLSDisabled},
			Image:           "registry.example/lease-service:v1",
			NetworkPolicy:   v1alpha1.NetworkPolicyManaged,
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
		},
	}
	for _, apply := range changes {
		apply(ls)
	}
	return ls
}

func embedded(ls *v1alpha1.LeaseService) {
	ls.Spec.Replicas = 1
	ls.Spec.EtcdEndpoints = nil
	ls.Spec.Image = ""
	ls.Spec.Storage = &v1alpha1.LeaseServiceStorage{Size: resource.MustParse("2Gi"), StorageClassName: "fast"}
}

func everything(ls *v1alpha1.LeaseService) {
	ls.Spec.EtcdEndpoints = []string{"https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379", "https://[fd00::1]:12379"}
	ls.Spec.Etcd = &v1alpha1.LeaseServiceEtcd{
		Prefix:       "/tenants/a/",
		TLSSecretRef: &v1alpha1.LeaseServiceSecretReference{Name: "etcd-client"}, AuthSecretRef: &v1alpha1.LeaseServiceSecretReference{Name: "etcd-login"},
	}
	ls.Spec.TLS = &v1alpha1.LeaseServiceTLS{Mode: v1alpha1.TLSProvided, SecretRef: &v1alpha1.LeaseServiceSecretReference{Name: "own-tls"}}
	ls.Spec.ImagePullSecrets = []v1alpha1.LeaseServiceSecretReference{{Name: "registry"}}
	ls.Spec.Scheduling = &v1alpha1.LeaseServiceScheduling{
		NodeSelector:      map[string]string{"pool": "locks"},
		Tolerations:       []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
		PriorityClassName: "important",
	}
	ls.Spec.AllowedClients = []v1alpha1.LeaseServiceClient{
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}},
		{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "c"}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "scheduler"}},
		},
	}
}

func managed(ls *v1alpha1.LeaseService) {
	ls.Spec.TLS = &v1alpha1.LeaseServiceTLS{Mode: v1alpha1.TLSManaged}
}

var settings = desired.Settings{DefaultImage: "holdfast.local/lease-service:dev", OperatorNamespace: "holdfast-system", IssueCertificates: true}

var certificates = desired.Certificates{
	Server: certs.Keys{CA: []byte("authority"), Cert: []byte("server"), Key: []byte("secret of the server")},
	Client: certs.Keys{CA: []byte("authority"), Cert: []byte("client"), Key: []byte("secret of the client")},
}

func TestChildrenGolden(t *testing.T) {
	for name, ls := range map[string]*v1alpha1.LeaseService{
		"known":      known(),
		"embedded":   known(embedded),
		"everything": known(everything),
		"managed":    known(managed),
		"tokens": known(managed, func(ls *v1alpha1.LeaseService) {
			ls.Spec.Auth = &v1alpha1.LeaseServiceAuth{TokenReview: true}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			children, err := desired.Children(ls, settings, certificates, nil)
			require.NoError(t, err)
			var docs []string
			for _, child := range children {
				out, err := yaml.Marshal(child)
				require.NoError(t, err)
				docs = append(docs, string(out))
			}
			golden(t, name, strings.Join(docs, "---\n"))
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden.yaml")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run the test with -update once")
	require.Empty(t, cmp.Diff(string(want), got), "read the difference; if it is wanted, run the test with -update")
}

func TestImage(t *testing.T) {
	for _, test := range []struct {
		name, spec, operator, want string
		err                        error
	}{
		{"the spec's own wins", "a:1", "b:1", "a:1", nil},
		{"the operator's default", "", "b:1", "b:1", nil},
		{"neither is an error", "", "", "", desired.ErrNoImage},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := desired.Image(known(func(ls *v1alpha1.LeaseService) { ls.Spec.Image = test.spec }), desired.Settings{DefaultImage: test.operator})
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestPullPolicyFollowsTheImage(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"lease-service":                         corev1.PullAlways,
		"lease-service:latest":                  corev1.PullAlways,
		"registry.example:5000/lease-service":   corev1.PullAlways,
		"registry.example:5000/lease-service:1": corev1.PullIfNotPresent,
		"lease-service@sha256:0123":             corev1.PullIfNotPresent,
		"lease-service:latest@sha256:0123":      corev1.PullIfNotPresent,
	} {
		set, err := desired.StatefulSet(known(func(ls *v1alpha1.LeaseService) { ls.Spec.Image = image }), settings, nil)
		require.NoError(t, err)
		require.Equal(t, want, set.Spec.Template.Spec.Containers[0].ImagePullPolicy, image)
	}
}

// What a spec does not want has no child.
func TestUnwantedChildren(t *testing.T) {
	single := known(func(ls *v1alpha1.LeaseService) { ls.Spec.Replicas = 1 })
	require.Nil(t, desired.PodDisruptionBudget(single))
	open := known(func(ls *v1alpha1.LeaseService) { ls.Spec.NetworkPolicy = v1alpha1.NetworkPolicyNone })
	require.Nil(t, desired.NetworkPolicy(open, settings))
	for _, test := range []struct {
		name string
		ls   *v1alpha1.LeaseService
		want int
	}{
		{"everything", known(), 6},
		{"one replica needs no budget", single, 5},
		{"no policy wanted", open, 5},
	} {
		children, err := desired.Children(test.ls, settings, certificates, nil)
		require.NoError(t, err)
		require.Len(t, children, test.want, test.name)
		for _, child := range children {
			require.NotNil(t, child, "a nil child would be applied")
		}
	}
}

// A spec that was made in Go and never met the schema has zeros where the schema has defaults.
func TestZeroSpecTakesTheDefaults(t *testing.T) {
	set, err := desired.StatefulSet(&v1alpha1.LeaseService{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}, settings, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, *set.Spec.Replicas)
	require.Contains(t, set.Spec.Template.Spec.Containers[0].Args, "--lease-ttl=60s")
	require.Equal(t, "1Gi", set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String())
	require.Nil(t, set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName, "an empty class would mean no provisioning at all")
}

func TestLimitsAreFlagsOfThePods(t *testing.T) {
	flags := func(limits *v1alpha1.LeaseServiceLimits) []string {
		ls := known()
		ls.Spec.Limits = limits
		set, err := desired.StatefulSet(ls, settings, nil)
		require.NoError(t, err)
		return set.Spec.Template.Spec.Containers[0].Args
	}
	without := flags(nil)
	require.Equal(t, without, flags(&v1alpha1.LeaseServiceLimits{}), "pods without limits stay as they are")
	with := flags(&v1alpha1.LeaseServiceLimits{
		Leases: 1, Waiters: 2, WaitersPerName: 3, AcquiresPerSecond: 4, MinTTLSeconds: 5, MaxTTLSeconds: 60, ValueBytes: 7,
	})
	require.Subset(t, with, without)
	require.Len(t, with, len(without)+7)
	require.Subset(t, with, []string{
		"--max-leases=1", "--max-waiters=2", "--max-waiters-per-name=3", "--max-acquires-per-second=4",
		"--min-ttl=5s", "--max-ttl=60s", "--max-value-bytes=7",
	})
}

func TestPodsOutliveTheirDrain(t *testing.T) {
	set, err := desired.StatefulSet(known(), settings, nil)
	require.NoError(t, err)
	require.Contains(t, set.Spec.Template.Spec.Containers[0].Args, "--drain-timeout=20s")
	require.Greater(t, *set.Spec.Template.Spec.TerminationGracePeriodSeconds, int64(20))
}

// Every pod label that selects must be on the pod, and the owner of a pod is read from the same labels.
func TestSelectorsMatchThePods(t *testing.T) {
	ls := known()
	set, err := desired.StatefulSet(ls, settings, nil)
	require.NoError(t, err)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	require.NoError(t, err)
	podLabels := set.Spec.Template.Labels
	require.True(t, selector.Matches(labels.Set(podLabels)))
	require.Equal(t, selector.String(), desired.Selector(ls.Name))
	owner, ok := desired.PodOwner(podLabels)
	require.True(t, ok)
	require.Equal(t, ls.Name, owner)
	for label := range desired.SelectorLabels(ls.Name) {
		foreign := maps.Clone(podLabels)
		delete(foreign, label)
		_, ok := desired.PodOwner(foreign)
		require.False(t, ok, "a pod without %s is not ours", label)
	}
}

func TestPolicyAdmitsTheOperatorOnce(t *testing.T) {
	same := known(func(ls *v1alpha1.LeaseService) { ls.Namespace = settings.OperatorNamespace })
	require.Len(t, desired.NetworkPolicy(same, settings).Spec.Ingress[0].From, 1, "its own namespace is admitted already")
	require.Len(t, desired.NetworkPolicy(known(), settings).Spec.Ingress[0].From, 2)
}

func TestPolicyOpensTheEtcdPorts(t *testing.T) {
	ports := func(rule networkingv1.NetworkPolicyEgressRule) (out []int32) {
		for _, port := range rule.Ports {
			out = append(out, port.Port.IntVal)
		}
		return out
	}
	rules := desired.NetworkPolicy(known(everything), settings).Spec.Egress
	require.Equal(t, []int32{2379, 12379}, ports(rules[len(rules)-1]))
	require.Len(t, desired.NetworkPolicy(known(embedded), settings).Spec.Egress, 2, "an embedded etcd needs no way out")
	broken := known(func(ls *v1alpha1.LeaseService) {
		ls.Spec.EtcdEndpoints = []string{"http://etcd", "http://e:99999", "%"}
	})
	require.Len(t, desired.NetworkPolicy(broken, settings).Spec.Egress, 2, "an endpoint without a port opens nothing")
}

func TestTLSMode(t *testing.T) {
	spec := func(mode v1alpha1.TLSMode) *v1alpha1.LeaseService {
		return known(func(ls *v1alpha1.LeaseService) { ls.Spec.TLS = &v1alpha1.LeaseServiceTLS{Mode: mode} })
	}
	for _, test := range []struct {
		mode   v1alpha1.TLSMode
		issues bool
		want   v1alpha1.TLSMode
		err    error
	}{
		{"", true, v1alpha1.TLSManaged, nil},
		{"", false, v1alpha1.TLSDisabled, nil},
		{v1alpha1.TLSManaged, true, v1alpha1.TLSManaged, nil},
		{v1alpha1.TLSManaged, false, "", desired.ErrNoIssuer},
		{v1alpha1.TLSProvided, false, v1alpha1.TLSProvided, nil},
		{v1alpha1.TLSDisabled, true, v1alpha1.TLSDisabled, nil},
	} {
		got, err := desired.TLSMode(spec(test.mode), desired.Settings{IssueCertificates: test.issues})
		require.ErrorIs(t, err, test.err)
		require.Equal(t, test.want, got)
	}
}

// Only the two Secrets of the operator are made; neither leaves a key anywhere but in its own.
func TestCertificatesAreInTheirSecretsAlone(t *testing.T) {
	for mode, want := range map[v1alpha1.TLSMode]int{v1alpha1.TLSManaged: 2, v1alpha1.TLSDisabled: 0} {
		children, err := desired.Children(known(func(ls *v1alpha1.LeaseService) { ls.Spec.TLS.Mode = mode }), settings, certificates, nil)
		require.NoError(t, err)
		secrets := 0
		for _, child := range children {
			if secret, ok := child.(*corev1.Secret); ok {
				secrets++
				require.Len(t, secret.Data, 3)
				continue
			}
			text, err := yaml.Marshal(child)
			require.NoError(t, err)
			require.NotContains(t, string(text), "secret of the")
		}
		require.Equal(t, want, secrets, mode)
	}
}
