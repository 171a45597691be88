//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

const (
	teamSpace  = "team-b" // of the team that the test plays
	otherSpace = "team-c" // of another one
	deployer   = "deployer"
	maxLeases  = 20 // that the platform lets the team's LeaseServices hold
)

// selfService is the state that the steps of TestE2ETenantsByThemselves share.
type selfService struct {
	test       *testing.T // the whole test, which outlives the steps
	env        environment
	cluster    *testCluster
	platform   *stack
	team       *stack
	kubeconfig string // of the team
	key        types.NamespacedName
}

// TestE2ETenantsByThemselves has a team keep its tenant in a namespace that the platform prepared, with rights in that
// namespace only; and, on the same cluster, programs in other languages and modules. The steps build on each other.
func TestE2ETenantsByThemselves(t *testing.T) {
	env := loadEnvironment(t)
	s := &selfService{
		test: t, env: env, cluster: startCluster(t, env, "e2e-tenants"),
		key: types.NamespacedName{Namespace: teamSpace, Name: "orders"},
	}
	s.platform = newStack(t, env, s.cluster.Kubeconfig())
	for _, step := range []struct {
		name string
		run  func(*selfService, *testing.T)
	}{
		{"the platform prepares namespaces", (*selfService).prepare},
		{"a team has rights in its namespace only", (*selfService).checkRights},
		{"a team brings up its tenant by itself", (*selfService).bringUp},
		{"what the platform does not allow is refused", (*selfService).refuse},
		{"another team's namespace is closed", (*selfService).stayOut},
		{"a YAML program creates a tenant", (*selfService).runYAML},
		{"a Go program in another module creates a tenant", (*selfService).runGo},
		{"a TypeScript program creates a tenant", (*selfService).runTypeScript},
		{"a team takes its tenant down", (*selfService).takeDown},
		{"destroy leaves an empty cluster", (*selfService).destroy},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			s.describe(t)
			t.FailNow()
		}
	}
}

func (s *selfService) describe(t *testing.T) {
	for _, args := range [][]string{
		{"get", "all,leaseservices,networkpolicies,resourcequotas", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"logs", "-n", operatorNamespace, "deployment/holdfast-operator", "--tail=40"},
	} {
		output, err := s.kubectl(s.cluster.Kubeconfig(), args...).run(context.WithoutCancel(t.Context()))
		t.Logf("kubectl %v (%v):\n%s", args, err, output)
	}
}

func (s *selfService) kubectl(kubeconfig string, args ...string) command {
	return command{
		path: filepath.Join(s.env.kubeBin, "kubectl"), args: append([]string{"--kubeconfig", kubeconfig}, args...),
		timeout: 30 * time.Second,
	}
}

func (s *selfService) prepare(t *testing.T) {
	limits := map[string]any{
		"replicas": map[string]any{"max": 3}, "leaseTTLSeconds": map[string]any{"min": 5, "max": 300},
		"leases": map[string]any{"max": maxLeases},
	}
	space := func(name string) map[string]any {
		return map[string]any{
			"name": name, "useDevEtcd": true, "limits": limits, "quota": map[string]any{"pods": 8},
			"team": []any{map[string]any{"kind": "ServiceAccount", "name": deployer, "namespace": name}},
		}
	}
	s.platform.config["holdfast:selfService"] = []any{
		space(teamSpace), space(otherSpace),
		map[string]any{"name": consumerSpace, "team": []any{map[string]any{"kind": "Group", "name": "developers"}}},
	}
	delete(s.platform.config, "holdfast:tenants")
	s.platform.save(t)
	s.platform.up().must(t)
	s.platform.up("--expect-no-changes").must(t)
	s.kubeconfig = s.teamKubeconfig(t, teamSpace)
}

// teamKubeconfig makes the ServiceAccount that the platform gave rights to, and a kubeconfig with its token.
func (s *selfService) teamKubeconfig(t *testing.T, namespace string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployer}}
	require.NoError(t, s.cluster.client.Create(t.Context(), account))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}
	require.NoError(t, s.cluster.client.SubResource("token").Create(t.Context(), account, request))
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.cluster.config.Host, CertificateAuthorityData: s.cluster.config.CAData}
	config.AuthInfos["team"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["team"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "team", Namespace: namespace}
	config.CurrentContext = "team"
	if config.Clusters["c"].CertificateAuthorityData == nil {
		config.Clusters["c"].CertificateAuthority = s.cluster.config.CAFile
	}
	content, err := clientcmd.Write(*config)
	require.NoError(t, err)
	file := filepath.Join(filepath.Dir(s.platform.file), namespace+".kubeconfig") // outlives the step
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

func (s *selfService) checkRights(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"create", "leaseservices", "-n", teamSpace}, "yes"},
		{[]string{"delete", "leaseservices", "-n", teamSpace}, "yes"},
		{[]string{"create", "zookeeperconfigs", "-n", teamSpace}, "no"},
		{[]string{"get", "pods", "-n", teamSpace}, "yes"},
		{[]string{"get", "secrets", "-n", teamSpace}, "no"},
		{[]string{"create", "pods", "-n", teamSpace}, "no"},
		{[]string{"update", "resourcequotas", "-n", teamSpace}, "no"},
		{[]string{"create", "rolebindings", "-n", teamSpace}, "no"},
		{[]string{"update", "leaseservices", "--subresource=status", "-n", teamSpace}, "no"},
		{[]string{"get", "leaseservices", "-n", otherSpace}, "no"},
		{[]string{"get", "leaseservices", "-n", operatorNamespace}, "no"},
		{[]string{"list", "leaseservices", "-A"}, "no"},
		{[]string{"list", "namespaces"}, "no"},
		{[]string{"get", "customresourcedefinitions"}, "no"},
		{[]string{"update", "validatingadmissionpolicies"}, "no"},
		{[]string{"*", "*", "-A"}, "no"},
	} {
		// Its exit code says the same as the word; a warning about the kind of resource may stand before it.
		output, _ := s.kubectl(s.kubeconfig, append([]string{"auth", "can-i"}, tc.args...)...).run(t.Context())
		require.Equal(t, tc.want, lastLine(output), "can-i %v: %s", tc.args, output)
	}
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

// teamConfig is the configuration of a team's stack in a space, with some keys of its tenant changed.
func (s *selfService) teamConfig(space string, changes tenant) map[string]any {
	return map[string]any{
		"holdfast:platform": "organization/holdfast/dev",
		"holdfast:space":    space,
		"holdfast:tenants": []tenant{tenant{
			"name": s.key.Name, "replicas": 2, "leaseTTLSeconds": 30, "limits": map[string]any{"leases": maxLeases, "maxTTLSeconds": 120},
			"resources": map[string]any{"requests": map[string]any{"cpu": "20m", "memory": "32Mi"}, "limits": map[string]any{"memory": "256Mi"}},
		}.with(changes)},
	}
}

func (s *selfService) bringUp(t *testing.T) {
	project := filepath.Join(s.env.repository, "stacks", "tenants")
	s.team = s.platform.beside(s.test, "holdfast-tenants", project, s.kubeconfig, s.teamConfig(teamSpace, nil))
	s.team.preview().must(t)
	s.team.up().must(t)
	s.team.up("--expect-no-changes").must(t)
	s.useLease(t, s.team, s.key)
	s.exhaust(t)
}

// exhaust acquires leases until the tenant's limit refuses one.
func (s *selfService) exhaust(t *testing.T) {
	t.Helper()
	var service v1alpha1.LeaseService
	require.NoError(t, s.cluster.client.Get(t.Context(), s.key, &service))
	leases := dialLeases(t, s.cluster, service.Status.Endpoint, clientTLS(t, s.cluster, s.key))
	_, err := leases.acquire(t.Context(), "jobs/long", "a", 121*time.Second)
	require.Equal(t, codes.InvalidArgument, status.Code(err), "limits.maxTTLSeconds is 120: %v", err)
	held := map[string]int64{}
	for i := range maxLeases + 2 {
		name := fmt.Sprintf("jobs/%d", i)
		lease, err := leases.acquire(t.Context(), name, "a", 30*time.Second)
		if err == nil {
			held[name] = lease.GetToken()
			continue
		}
		require.Equal(t, codes.ResourceExhausted, status.Code(err), "limits.leases is %d: %v", maxLeases, err)
		break
	}
	// Each of the two replicas holds its shards to their share, so the first to be full is half of the limit at the earliest.
	require.GreaterOrEqual(t, len(held), maxLeases/2)
	require.LessOrEqual(t, len(held), maxLeases)
	for name, token := range held {
		require.NoError(t, leases.release(t.Context(), name, token))
	}
}

// useLease acquires and releases a lease at the endpoint of a LeaseService that is ready.
func (s *selfService) useLease(t *testing.T, from *stack, key types.NamespacedName) {
	t.Helper()
	var service v1alpha1.LeaseService
	require.NoError(t, s.cluster.client.Get(t.Context(), key, &service))
	require.Empty(t, notReady(&service), "pulumi up returned before the LeaseService was ready")
	leases := dialLeases(t, s.cluster, service.Status.Endpoint, clientTLS(t, s.cluster, key))
	lease, err := leases.acquire(t.Context(), "jobs/nightly", from.dir, 30*time.Second)
	require.NoError(t, err)
	require.NoError(t, leases.release(t.Context(), "jobs/nightly", lease.GetToken()))
}

func (s *selfService) refuse(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes tenant
		want    []string
	}{
		{"replicas", tenant{"replicas": 4}, []string{"holdfast:tenants[0] (orders): replicas: 4 is above 3, the most that the platform allows"}},
		{"TTL and image", tenant{"leaseTTLSeconds": 2, "image": "mine:1"}, []string{
			"holdfast:tenants[0] (orders): leaseTTLSeconds: 2 is below 5, the least that the platform allows",
			`holdfast:tenants[0] (orders): image: "mine:1" is not allowed; leave it out, for the platform's own`,
		}},
		{"leases", tenant{"limits": map[string]any{"leases": maxLeases + 1}}, []string{
			"holdfast:tenants[0] (orders): limits.leases: 21 is above 20, the most that the platform allows",
		}},
		{"no limit of leases", tenant{"limits": map[string]any{"valueBytes": 100}}, []string{
			"holdfast:tenants[0] (orders): limits.leases: is not given, which is no limit; at most 20 is allowed",
		}},
		{"etcd", tenant{"etcdEndpoints": []string{"http://etcd.elsewhere.svc:2379"}}, []string{
			`holdfast:tenants[0] (orders): etcdEndpoints[0]: "http://etcd.elsewhere.svc:2379" is not allowed; allowed: http://etcd.holdfast-etcd.svc:2379`,
		}},
		{"keys of others", tenant{"etcd": map[string]any{"prefix": "/holdfast/team-c/orders/"}}, []string{
			`holdfast:tenants[0] (orders): etcd.prefix: "/holdfast/team-c/orders/" is not allowed; it must begin with /holdfast/team-b/`,
		}},
		{"an unknown key", tenant{"namespace": otherSpace}, []string{"holdfast:tenants[0] (orders): namespace: is not a known key"}},
	} {
		s.team.config = s.teamConfig(teamSpace, tc.changes)
		s.team.save(t)
		output, err := s.team.preview().run(t.Context())
		require.Error(t, err, tc.name)
		for _, want := range tc.want {
			require.Contains(t, output, want, tc.name)
		}
	}
	s.team.config = s.teamConfig(teamSpace, nil)
	s.team.save(t)
	s.refuseByAPIServer(t)
}

// refuseByAPIServer has the team go round its Pulumi program, whose checks it could leave out.
func (s *selfService) refuseByAPIServer(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	require.NoError(t, err)
	team, err := client.New(config, client.Options{Scheme: newScheme()})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		spec v1alpha1.LeaseServiceSpec
		want string
	}{
		"replicas": {
			v1alpha1.LeaseServiceSpec{Replicas: 4, EtcdEndpoints: []string{"http://etcd.holdfast-etcd.svc:2379"}},
			"spec.replicas is outside of what the platform allows in this namespace: at most 3",
		},
		"leases": {v1alpha1.LeaseServiceSpec{}, "spec.limits.leases is outside of what the platform allows in this namespace: it has to be given, at most 20"},
		"TTL":    {v1alpha1.LeaseServiceSpec{LeaseTTLSeconds: 2}, "spec.leaseTTLSeconds is outside"},
		"image":  {v1alpha1.LeaseServiceSpec{Image: "mine:1"}, "spec.image is outside"},
		"etcd":   {v1alpha1.LeaseServiceSpec{EtcdEndpoints: []string{"http://etcd.elsewhere.svc:2379"}}, "spec.etcdEndpoints is outside"},
		"keys of others": {
			v1alpha1.LeaseServiceSpec{
				EtcdEndpoints: []string{"http://etcd.holdfast-etcd.svc:2379"}, Etcd: &v1alpha1.LeaseServiceEtcd{Prefix: "/holdfast/team-c/orders/"},
			},
			"spec.etcd.prefix is outside",
		},
	} {
		if name != "leases" { // one fault each: the API server tells the first
			tc.spec.Limits = &v1alpha1.LeaseServiceLimits{Leases: maxLeases}
		}
		object := &v1alpha1.LeaseService{ObjectMeta: metav1.ObjectMeta{Namespace: teamSpace, Name: "by-hand"}, Spec: tc.spec}
		err := team.Create(t.Context(), object)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
		require.ErrorContains(t, err, tc.want, name)
	}
}

// stayOut has the team name the namespace of another one, which its rights do not reach.
func (s *selfService) stayOut(t *testing.T) {
	s.team.config = s.teamConfig("team-d", nil)
	s.team.save(t)
	output, err := s.team.preview().run(t.Context())
	require.Error(t, err)
	require.Contains(t, output, `holdfast:space: "team-d" is no space of the platform; there are: consumers, team-b, team-c`)

	project := filepath.Join(s.env.repository, "stacks", "tenants")
	intruder := s.platform.beside(t, "holdfast-intruder", project, s.kubeconfig, s.teamConfig(otherSpace, nil))
	intruder.dir = s.renamed(t, project, "holdfast-intruder")
	output, err = intruder.up().run(t.Context())
	require.Error(t, err, "a team created a LeaseService in another one's namespace:\n%s", output)
	require.Regexp(t, `cannot (create|patch) resource "leaseservices"`, output)
	var services v1alpha1.LeaseServiceList
	require.NoError(t, s.cluster.client.List(t.Context(), &services, client.InNamespace(otherSpace)))
	require.Empty(t, services.Items)

	s.team.config = s.teamConfig(teamSpace, nil)
	s.team.save(t)
}

// renamed is the project under another name: its program stays where it is.
func (s *selfService) renamed(t *testing.T, project, name string) string {
	t.Helper()
	folder := t.TempDir()
	content := fmt.Sprintf("name: %s\nmain: %s\nruntime: go\n", name, filepath.Join(project, "program"))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "Pulumi.yaml"), []byte(content), 0o600))
	return folder
}

func (s *selfService) takeDown(t *testing.T) {
	s.team.destroy().must(t)
	err := s.cluster.client.Get(t.Context(), s.key, &v1alpha1.LeaseService{})
	require.True(t, apierrors.IsNotFound(err), "the LeaseService after destroy: %v", err)
	var namespace corev1.Namespace
	require.NoError(t, s.cluster.client.Get(t.Context(), types.NamespacedName{Name: teamSpace}, &namespace), "the namespace is the platform's")
}

func (s *selfService) destroy(t *testing.T) {
	s.platform.destroy().must(t)
	var namespaces corev1.NamespaceList
	require.NoError(t, s.cluster.client.List(t.Context(), &namespaces))
	for _, namespace := range namespaces.Items {
		require.Contains(t, []string{"default", "kube-system", "kube-public", "kube-node-lease"}, namespace.Name)
	}
	var policies admissionv1.ValidatingAdmissionPolicyList
	require.NoError(t, s.cluster.client.List(t.Context(), &policies))
	for i := range policies.Items {
		require.NotContains(t, policies.Items[i].Name, "holdfast")
	}
}
