package acceptance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

const etcd = `etcdEndpoints: ["http://etcd-cluster:2379"]`

// Strict, as kubectl and Argo CD apply: an unknown field is refused and not dropped.
func strict(c client.Client) client.Client {
	return client.WithFieldValidation(c, "Strict")
}

func TestEveryExampleIsAccepted(t *testing.T) {
	c := strict(newClient(t))
	namespace := newNamespace(t, c)
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "..", "docs", "examples", "leaseservice*.yaml"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 3)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, c.Create(testkit.Context(t), manifest(t, content, namespace)), file)
	}
}

func TestKnownManifestAsItStands(t *testing.T) {
	c := strict(newClient(t))
	namespace := newNamespace(t, c)
	require.NoError(t, c.Create(testkit.Context(t), minimal(t, namespace, "locks", `
  replicas: 3
  etcdEndpoints: ["http://etcd-cluster:2379"]
  leaseTTLSeconds: 30
  image: example.com/lease-service:1
  resources: {limits: {cpu: 500m, memory: 256Mi}}`)))
}

func TestDefaults(t *testing.T) {
	c := strict(newClient(t))
	namespace := newNamespace(t, c)
	require.NoError(t, c.Create(testkit.Context(t), minimal(t, namespace, "scratch", `{storage: {}}`)))
	got := &v1alpha1.LeaseService{}
	require.NoError(t, c.Get(testkit.Context(t), client.ObjectKey{Namespace: namespace, Name: "scratch"}, got))
	require.EqualValues(t, v1alpha1.DefaultReplicas, got.Spec.Replicas)
	require.EqualValues(t, v1alpha1.DefaultLeaseTTLSeconds, got.Spec.LeaseTTLSeconds)
	require.EqualValues(t, v1alpha1.DefaultProgressDeadlineSeconds, got.Spec.ProgressDeadlineSeconds)
	require.Equal(t, v1alpha1.DefaultStorageSize, got.Spec.Storage.Size.String())
	require.Equal(t, v1alpha1.NetworkPolicyManaged, got.Spec.NetworkPolicy)
}

// A spec made in Go has zeros for what it leaves out: they must mean the defaults, and not be refused.
func TestGoZeroValuesTakeTheDefaults(t *testing.T) {
	c := strict(newClient(t))
	ls := &v1alpha1.LeaseService{Spec: v1alpha1.LeaseServiceSpec{Storage: &v1alpha1.LeaseServiceStorage{}}}
	ls.Namespace, ls.Name = newNamespace(t, c), "locks"
	require.NoError(t, c.Create(testkit.Context(t), ls))
	require.EqualValues(t, 1, ls.Spec.Replicas)
	require.EqualValues(t, 60, ls.Spec.LeaseTTLSeconds)
	require.Equal(t, "1Gi", ls.Spec.Storage.Size.String())
}

func TestBadManifestsAreRefused(t *testing.T) {
	c := strict(newClient(t))
	namespace := newNamespace(t, c)
	long := strings.Repeat("x", 53)
	for _, test := range []struct {
		name, spec string
		want       []string // all of them are in the message
	}{
		{"locks", `{replicas: 0, ` + etcd + `}`, []string{"spec.replicas", "0", "greater than or equal to 1"}},
		{"locks", `{replicas: 101, ` + etcd + `}`, []string{"spec.replicas", "101", "less than or equal to 100"}},
		{"locks", `{replicas: "three", ` + etcd + `}`, []string{"spec.replicas", "string", "integer"}},
		{"locks", `{replicas: 3}`, []string{"spec.etcdEndpoints", "spec.replicas is more than 1", "serves a single replica for development"}},
		{"locks", `{replicas: 2, etcdEndpoints: []}`, []string{"spec.etcdEndpoints", "spec.replicas is more than 1"}},
		{"locks", `{leaseTTLSeconds: -1}`, []string{"spec.leaseTTLSeconds", "-1", "greater than or equal to 1"}},
		{"locks", `{leaseTTLSeconds: 0}`, []string{"spec.leaseTTLSeconds", "0", "greater than or equal to 1"}},
		{"locks", `{leaseTTLSeconds: 86401}`, []string{"spec.leaseTTLSeconds", "86401", "less than or equal to 86400"}},
		{"locks", `{limits: {leases: 0}}`, []string{"spec.limits.leases", "0", "greater than or equal to 1"}},
		{"locks", `{limits: {valueBytes: 65537}}`, []string{"spec.limits.valueBytes", "65537", "less than or equal to 65536"}},
		{"locks", `{limits: {minTTLSeconds: 90, maxTTLSeconds: 80}, leaseTTLSeconds: 85}`, []string{"spec.limits.maxTTLSeconds", "is less than spec.limits.minTTLSeconds"}},
		{"locks", `{limits: {minTTLSeconds: 61}}`, []string{"spec.leaseTTLSeconds", "60 when not given", "less than spec.limits.minTTLSeconds"}},
		{"locks", `{limits: {maxTTLSeconds: 59}}`, []string{"spec.leaseTTLSeconds", "60 when not given", "more than spec.limits.maxTTLSeconds"}},
		{"locks", `{leaseTtlSeconds: 30}`, []string{`unknown field "spec.leaseTtlSeconds"`}},
		{"locks", `{etcdEndpoints: ["etcd-cluster:2379"]}`, []string{"spec.etcdEndpoints[0]", "a client URL with a port", "http://host:2379"}},
		{"locks", `{etcdEndpoints: ["http://etcd-cluster"]}`, []string{"spec.etcdEndpoints[0]", "a client URL with a port"}},
		{"locks", `{etcdEndpoints: ["http://etcd-cluster:2379/"]}`, []string{"spec.etcdEndpoints[0]", "nothing after it"}},
		{"locks", `{etcdEndpoints: ["http://root:secret@etcd-cluster:2379"]}`, []string{"spec.etcdEndpoints[0]", "a client URL with a port"}},
		{"locks", `{etcdEndpoints: ["http://a:2379,http://b:2379"]}`, []string{"spec.etcdEndpoints[0]", "a client URL with a port"}},
		{"locks", `{etcdEndpoints: ["unix:///run/etcd.sock"]}`, []string{"spec.etcdEndpoints[0]", "a client URL with a port"}},
		{"locks", `{etcdEndpoints: ["http://a:2379", "http://a:2379"]}`, []string{"spec.etcdEndpoints[1]", "Duplicate value", "http://a:2379"}},
		{"locks", `{etcd: {prefix: /a/}}`, []string{"spec.etcd", "leave it out, or set spec.etcdEndpoints"}},
		{"locks", `{etcd: {prefix: /a}, ` + etcd + `}`, []string{"spec.etcd.prefix", "begins and ends in '/'"}},
		{"locks", `{etcd: {prefix: a/}, ` + etcd + `}`, []string{"spec.etcd.prefix", "begins and ends in '/'"}},
		{"locks", `{etcd: {prefix: /a/../b/}, ` + etcd + `}`, []string{"spec.etcd.prefix", "such as /holdfast/team-a/locks/"}},
		{"locks", `{etcd: {prefix: /}, ` + etcd + `}`, []string{"spec.etcd.prefix", "begins and ends in '/'"}},
		{"locks", `{etcd: {tlsSecretRef: {name: a}}, ` + etcd + `}`, []string{"spec.etcdEndpoints", "spec.etcd.tlsSecretRef needs https"}},
		{"locks", `{etcd: {tlsSecretRef: {name: a}}, etcdEndpoints: ["https://a:2379", "http://b:2379"]}`, []string{"spec.etcdEndpoints", "needs https"}},
		{"locks", `{etcd: {authSecretRef: {}}, ` + etcd + `}`, []string{"spec.etcd.authSecretRef.name", "Required"}},
		{"locks", `{tls: {mode: Provided}}`, []string{"spec.tls", "spec.tls.secretRef is set if, and only if"}},
		{"locks", `{tls: {secretRef: {name: a}}}`, []string{"spec.tls", "spec.tls.mode is Provided"}},
		{"locks", `{tls: {mode: Managed, secretRef: {name: a}}}`, []string{"spec.tls", "spec.tls.mode is Provided"}},
		{"locks", `{tls: {mode: Never}}`, []string{"spec.tls.mode", "Never", `"Managed", "Provided", "Disabled"`}},
		{"locks", `{tls: {mode: Disabled, serverNames: [a.example.com]}}`, []string{"spec.tls", "a certificate that the operator issues"}},
		{"locks", `{tls: {serverNames: ["https://a"]}}`, []string{"spec.tls.serverNames[0]", "a DNS name in lower case"}},
		{"locks", `{auth: {}}`, []string{"spec.auth", "set tokenReview, allowedIdentities or both"}},
		{"locks", `{auth: {tokenReview: true}, tls: {mode: Disabled}}`, []string{"spec.auth", "needs TLS"}},
		{"locks", `{auth: {tokenReview: true}, tls: {mode: Provided, secretRef: {name: a}}}`, []string{"spec.auth", "allowedIdentities is required"}},
		{"locks", `{auth: {allowedIdentities: []}}`, []string{"spec.auth.allowedIdentities", "at least 1"}},
		{"locks", `{auth: {allowedIdentities: ["a*b"]}}`, []string{"spec.auth.allowedIdentities[0]", "one '*' at its end"}},
		{"locks", `{storage: {size: 1Gi}, ` + etcd + `}`, []string{"spec.storage", "leave it out when spec.etcdEndpoints is set"}},
		{"locks", `{storage: {size: "0"}}`, []string{"spec.storage.size", "more than zero"}},
		{"locks", `{storage: {size: -1Gi}}`, []string{"spec.storage.size", "more than zero"}},
		{"locks", `{storage: {size: lots}}`, []string{"spec.storage.size", "lots"}},
		{"locks", `{image: "a b"}`, []string{"spec.image", "without blanks"}},
		{"locks", `{resources: {limits: {memory: plenty}}}`, []string{"spec.resources.limits", "plenty"}},
		{"locks", `{resources: {claims: [{name: gpu}]}}`, []string{"spec.resources", "claims is not supported"}},
		{"locks", `{allowedClients: [{}]}`, []string{"spec.allowedClients[0]", "namespaceSelector, podSelector or both"}},
		{"locks", `{networkPolicy: Never}`, []string{"spec.networkPolicy", "Never", `"Managed"`, `"None"`}},
		{"locks", `{imagePullSecrets: [{name: ""}]}`, []string{"spec.imagePullSecrets[0].name", "at least 1"}},
		{"locks", `{progressDeadlineSeconds: -5}`, []string{"spec.progressDeadlineSeconds", "-5", "greater than or equal to 1"}},
		{"1locks", `{}`, []string{"metadata.name must be a DNS label that starts with a letter"}},
		{"lo.cks", `{}`, []string{"metadata.name must be a DNS label that starts with a letter"}},
		{long, `{}`, []string{"metadata.name has at most 52 characters"}},
	} {
		t.Run(test.name+" "+test.spec, func(t *testing.T) {
			err := c.Create(testkit.Context(t), minimal(t, namespace, test.name, test.spec))
			require.Error(t, err)
			require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), err)
			for _, part := range test.want {
				require.ErrorContains(t, err, part)
			}
			t.Log(err)
		})
	}
}

func TestChangesThatWouldLoseLeasesAreRefused(t *testing.T) {
	c := strict(newClient(t))
	namespace := newNamespace(t, c)
	prefixed := `{etcd: {prefix: /a/}, ` + etcd + `}`
	for i, test := range []struct {
		from, to string
		want     string // "": accepted
	}{
		{`{}`, `{` + etcd + `}`, "spec.etcdEndpoints cannot be added or emptied later"},
		{`{` + etcd + `}`, `{}`, "spec.etcdEndpoints cannot be added or emptied later"},
		{`{` + etcd + `}`, `{etcdEndpoints: ["http://another:2379"], replicas: 5}`, ""},
		{prefixed, `{etcd: {prefix: /b/}, ` + etcd + `}`, "spec.etcd.prefix cannot be changed, added or removed"},
		{prefixed, `{` + etcd + `}`, "spec.etcd.prefix cannot be changed, added or removed"},
		{`{` + etcd + `}`, prefixed, "spec.etcd.prefix cannot be changed, added or removed"},
		{`{` + etcd + `}`, `{etcd: {}, ` + etcd + `}`, ""},
		{`{storage: {size: 1Gi}}`, `{storage: {size: 2Gi}}`, "spec.storage.size cannot be changed"},
		{`{}`, `{storage: {size: 2Gi}}`, "spec.storage.size cannot be changed"},
		{`{storage: {size: 2Gi}}`, `{}`, "spec.storage.size cannot be changed"},
		{`{}`, `{storage: {size: 1Gi}}`, ""},
		{`{storage: {}}`, `{storage: {storageClassName: fast}}`, "spec.storage.storageClassName cannot be changed"},
		{`{storage: {storageClassName: fast}}`, `{}`, "spec.storage.storageClassName cannot be changed"},
	} {
		t.Run(test.from+" to "+test.to, func(t *testing.T) {
			obj := minimal(t, namespace, fmt.Sprintf("locks-%d", i), test.from)
			require.NoError(t, c.Create(testkit.Context(t), obj))
			changed := minimal(t, namespace, obj.GetName(), test.to)
			changed.SetResourceVersion(obj.GetResourceVersion())
			err := c.Update(testkit.Context(t), changed)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, test.want)
		})
	}
}
