package platform_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-io/holdfast/stacks/platform"
)

// values is the least configuration that is right, with changes made to it; an empty change takes the key away.
func values(changes map[string]string) map[string]string {
	all := map[string]string{
		"holdfast:operator":     `{"image": "holdfast.local/operator:1"}`,
		"holdfast:leaseService": `{"image": "holdfast.local/lease-service:1"}`,
		"kubernetes:context":    "local",
	}
	for key, value := range changes {
		if value == "" {
			delete(all, "holdfast:"+key)
			continue
		}
		all["holdfast:"+key] = value
	}
	return all
}

func TestParseConfigDefaults(t *testing.T) {
	config, err := platform.ParseConfig(values(map[string]string{"tenants": `[{"name": "team-a"}]`}), nil)
	require.NoError(t, err)
	require.Equal(t, "pulumi", config.Ownership)
	require.Equal(t, "holdfast-system", config.Namespace)
	require.Nil(t, config.DevEtcd)
	require.Len(t, config.Tenants, 1)
	tenant := config.Tenants[0]
	require.Equal(t, "team-a", tenant.Namespace)
	require.Equal(t, int32(1), tenant.Replicas)
	require.Equal(t, int32(60), tenant.LeaseTTLSeconds)
}

func TestParseConfigReadsEveryFieldOfTheSpec(t *testing.T) {
	config, err := platform.ParseConfig(values(map[string]string{"tenants": `[{
		"name": "team-a", "namespace": "apps", "replicas": 3, "leaseTTLSeconds": 30, "image": "example.com/ls:1",
		"etcdEndpoints": ["http://etcd-cluster:2379"], "etcd": {"prefix": "/a/b/"},
		"resources": {"limits": {"cpu": "1", "memory": "64Mi"}}, "quota": {"pods": 10, "limits.cpu": "4"},
		"scheduling": {"nodeSelector": {"disk": "ssd"}},
		"allowedClients": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]
	}]`}), nil)
	require.NoError(t, err)
	tenant := config.Tenants[0]
	require.Equal(t, "apps", tenant.Namespace)
	require.Equal(t, int32(3), tenant.Replicas)
	require.Equal(t, int32(30), tenant.LeaseTTLSeconds)
	require.Equal(t, []string{"http://etcd-cluster:2379"}, tenant.EtcdEndpoints)
	require.Equal(t, "/a/b/", tenant.Etcd.Prefix)
	require.Equal(t, "ssd", tenant.Scheduling.NodeSelector["disk"])
	require.Equal(t, "a", tenant.AllowedClients[0].NamespaceSelector.MatchLabels["team"])
	require.True(t, resource.MustParse("10").Equal(tenant.Quota["pods"]))
	require.True(t, resource.MustParse("64Mi").Equal(*tenant.Resources.Limits.Memory()))
}

func TestParseConfigRefuses(t *testing.T) {
	const devEtcd = `{"image": "holdfast.local/etcd:dev"}`
	for _, tc := range []struct {
		name    string
		changes map[string]string
		want    []string
	}{
		{"an unknown key", map[string]string{"tenats": `[]`}, []string{
			`tenats: is not a known key; allowed: argocd, crds, devEtcd, gitops, leaseService, namespace, operator, ownership, releaseGuard, selfService, tenants, zookeeper`,
		}},
		{"what is missing", map[string]string{"operator": `{}`, "leaseService": ""}, []string{
			`leaseService: is required`, `operator.image: is required`,
		}},
		{"another owner", map[string]string{"ownership": "terraform"}, []string{
			`ownership: "terraform" is not allowed; allowed: pulumi, gitops`,
		}},
		{"GitOps without a repository", map[string]string{"ownership": "gitops", "argocd": `{"repoURL": "https://g", "path": "p"}`}, []string{
			`gitops: is missing, but GitOps is the owner by ownership: say which repository it keeps`,
			`argocd: is an Application that Pulumi owns, but ownership is gitops: put the Application into Git, or leave argocd out`,
		}},
		{"a tenant in a repository that is not named", map[string]string{"tenants": `[{"name": "a", "ownership": "gitops"}, {"name": "b"}]`}, []string{
			`gitops: is missing, but GitOps is the owner by tenants[0] (a): ownership: say which repository it keeps`,
		}},
		{"what the flavour Flux has not", map[string]string{"gitops": `{"flavour": "flux", "repoURL": "https://g", "installHealth": true, "revisionManagedByGuard": true}`}, []string{
			`gitops.path: is required`,
			`gitops.installHealth: is true, but is for flavour argocd only; leave it out`,
			`gitops.revisionManagedByGuard: is true, but is for flavour argocd only; leave it out`,
		}},
		{"what the flavour Argo CD has not", map[string]string{"gitops": `{"flavour": "argocd", "repoURL": "https://g", "path": "p", "secretName": "s"}`}, []string{
			`gitops.secretName: "s" is for flavour flux only: Argo CD finds credentials by the repository's URL`,
		}},
		{"a folder that is another's", map[string]string{"tenants": `[{"name": "crds"}, {"name": "a", "namespace": "cluster"}]`}, []string{
			`tenants[0] (crds): namespace: "crds" is taken by the folder of the CRDs; each needs its own`,
			`tenants[1] (a): namespace: "cluster" is taken by the folder of what has no namespace; each needs its own`,
		}},
		{"a number that an autoscaler owns", map[string]string{"tenants": `[{"name": "a", "autoscaled": true, "replicas": 2, "etcdEndpoints": ["http://e:1"]}, {"name": "b", "autoscaled": true}]`}, []string{
			`tenants[0] (a): replicas: 2 cannot be set together with autoscaled: the autoscaler owns the number`,
			`tenants[1] (b): etcdEndpoints: is missing, but replicas that an autoscaler adds need an etcd they share`,
		}},
		{"a string for a list", map[string]string{"tenants": "team-a"}, []string{
			`tenants: "team-a" is a string, but must be a list`,
		}},
		{"a tenant without a name", map[string]string{"tenants": `[{}]`}, []string{`tenants[0].name: is required`}},
		{"bounds", map[string]string{"tenants": `[{"name": "team-a"}, {"name": "team-b", "leaseTTLSeconds": 0, "replicas": 101}]`}, []string{
			`tenants[1] (team-b): leaseTTLSeconds: 0 is below the minimum 1`,
			`tenants[1] (team-b): replicas: 101 is above the maximum 100`,
			`tenants[1] (team-b): etcdEndpoints: is missing, but 101 replicas need an etcd they share; only 1 replica may run an etcd of its own`,
		}},
		{"a bad endpoint", map[string]string{"tenants": `[{"name": "team-a", "etcdEndpoints": ["etcd:2379"]}]`}, []string{
			`tenants[0] (team-a): etcdEndpoints[0]: "etcd:2379" is not allowed; an etcd endpoint in spec.etcdEndpoints is a client URL with a port and nothing after it: http://host:2379 or https://host:2379`,
		}},
		{"a bad name", map[string]string{"tenants": `[{"name": "Team_A"}]`}, []string{
			`tenants[0] (Team_A): name: "Team_A" is not allowed; allowed are lower case letters, digits and '-', beginning with a letter and not ending in '-'`,
		}},
		{"duplicates", map[string]string{"tenants": `[{"name": "a"}, {"name": "a", "namespace": "b"}, {"name": "c", "namespace": "b"}, {"name": "d", "namespace": "holdfast-system"}]`}, []string{
			`tenants[1] (a): name: "a" is taken by tenants[0] (a); each needs its own`,
			`tenants[2] (c): namespace: "b" is taken by tenants[1] (a); each needs its own`,
			`tenants[3] (d): namespace: "holdfast-system" is taken by the operator; each needs its own`,
		}},
		{"replicas without an etcd", map[string]string{"tenants": `[{"name": "a", "replicas": 3}]`}, []string{
			`tenants[0] (a): etcdEndpoints: is missing, but 3 replicas need an etcd they share; only 1 replica may run an etcd of its own`,
		}},
		{"a development etcd that is not there", map[string]string{"tenants": `[{"name": "a", "useDevEtcd": true}]`}, []string{
			`tenants[0] (a): useDevEtcd: is true, but the stack has no devEtcd; configure holdfast:devEtcd or give etcdEndpoints`,
		}},
		{"two etcds", map[string]string{"devEtcd": devEtcd, "tenants": `[{"name": "a", "useDevEtcd": true, "etcdEndpoints": ["http://e:1"]}]`}, []string{
			`tenants[0] (a): useDevEtcd: cannot be true together with etcdEndpoints; keep one of them`,
		}},
		{"a volume for nothing", map[string]string{"devEtcd": devEtcd, "tenants": `[{"name": "a", "useDevEtcd": true, "storage": {"size": "1Gi"}}]`}, []string{
			`tenants[0] (a): storage: is the volume of a replica's own etcd; leave it out, since the tenant uses another etcd`,
		}},
		{"a quota that refuses every pod", map[string]string{"tenants": `[{"name": "a", "quota": {"requests.cpu": "1", "memory": "1Gi", "limits.memory": "1Gi", "pods": 3}, "resources": {"limits": {"cpu": "1"}}}]`}, []string{
			`tenants[0] (a): resources: must set limits.memory, requests.memory, which quota counts: pods without it are refused`,
		}},
		{"a token in the URL of a repository", map[string]string{
			"gitops": `{"flavour": "flux", "repoURL": "https://hunter2@git.example.com/x.git", "path": "p"}`,
			"argocd": `{"repoURL": "ssh://git:hunter2@git.example.com/x.git", "path": "p"}`,
		}, []string{
			`gitops.repoURL: has credentials in it, which everybody could read who may see the objects made from it: leave out what is before the @; name a Secret with them in gitops.secretName`,
			`argocd.repoURL: has credentials in it, which everybody could read who may see the objects made from it: leave out what is before the @; Argo CD finds them by the URL, in a Secret of its own`,
		}},
		{"a ZooKeeper that the operator would refuse", map[string]string{"zookeeper": `{
			"connectString": "zk-0:2181,,zk-1", "credential": "x",
			"grants": [{"namespaces": [], "paths": ["teams"], "ensembles": ["zk-0:2181/apps"]}, {"namespaces": ["*", "A"]}]
		}`}, []string{
			`zookeeper.connectString: "zk-0:2181,,zk-1" is not allowed; allowed are servers and a chroot, such as zk-0:2181,zk-1:2181/apps`,
			`zookeeper.credential: is not a known key; allowed: connectString, credentialSecret, grants, tls`,
			`zookeeper.grants[0].ensembles[0]: "zk-0:2181/apps" is not allowed; allowed are servers without a chroot, such as zk-0:2181,zk-1:2181`,
			`zookeeper.grants[0].namespaces: has 0 items, below the minimum 1`,
			`zookeeper.grants[0].paths[0]: "teams" is not allowed; allowed is an absolute path without a "/" at the end, or "/" for all`,
			`zookeeper.grants[1].paths: is required`,
			`zookeeper.grants[1].namespaces[1]: "A" is not allowed; allowed is the name of a namespace, or "*" for every one`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := platform.ParseConfig(values(tc.changes), nil)
			var configError *platform.ConfigError
			require.ErrorAs(t, err, &configError)
			var got []string
			for _, problem := range configError.Problems {
				got = append(got, problem.String())
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestThePathInTheRepositoryIsWrittenInOneWay(t *testing.T) {
	for written, want := range map[string]string{"x/y": "x/y", "/x/y/": "x/y", "./x": "x", "x//y/.": "x/y", "/": ".", "..x/y..": "..x/y.."} {
		config, err := platform.ParseConfig(values(map[string]string{"gitops": `{"flavour": "flux", "repoURL": "https://g", "path": "` + written + `"}`}), nil)
		require.NoError(t, err, written)
		require.Equal(t, want, config.GitOps.Path, written)
	}
	for _, refused := range []string{"..", "../x", "a/../b", "/a/.."} {
		require.Equal(t, []string{`gitops.path: "` + refused + `" is not allowed; allowed is a path in the repository without ".."`},
			problemsOf(t, map[string]string{"gitops": `{"flavour": "argocd", "repoURL": "https://g", "path": "` + refused + `"}`}))
	}
}

func TestRepositoriesWithoutCredentialsAreAllowed(t *testing.T) {
	for _, url := range []string{
		"https://git.example.com/x.git", "https://git.example.com:8443/@scope/x.git", "http://127.0.0.1:3000/x.git",
		"ssh://git@git.example.com:22/x.git", "git@git.example.com:x.git", "/srv/x.git",
	} {
		_, err := platform.ParseConfig(values(map[string]string{
			"gitops": `{"flavour": "flux", "repoURL": "` + url + `", "path": "p"}`,
			"argocd": `{"repoURL": "` + url + `", "path": "p"}`,
		}), nil)
		require.NoError(t, err, url)
	}
}

func TestParseConfigNamesTheKeysThatATenantMayHave(t *testing.T) {
	_, err := platform.ParseConfig(values(map[string]string{"tenants": `[{"name": "team-a", "ttl": 5}]`}), nil)
	require.ErrorContains(t, err, "holdfast:tenants[0] (team-a): ttl: is not a known key; allowed: allowedClients, ")
	require.ErrorContains(t, err, " leaseTTLSeconds, limits, name, namespace,")
	require.ErrorContains(t, err, " useDevEtcd")
}

func TestConfigErrorIsReadable(t *testing.T) {
	_, err := platform.ParseConfig(values(map[string]string{"tenants": `[{"name": "a", "replicas": 0}, {"name": "a"}]`}), nil)
	require.EqualError(t, err, `the stack's configuration has 2 problem(s):
  holdfast:tenants[0] (a): replicas: 0 is below the minimum 1
  holdfast:tenants[1] (a): name: "a" is taken by tenants[0] (a); each needs its own`)
}

func TestParseConfigRefusesEncryptedValuesWithoutShowingThem(t *testing.T) {
	_, err := platform.ParseConfig(values(map[string]string{"namespace": "hunter2"}), []string{"holdfast:namespace"})
	require.ErrorContains(t, err, "holdfast:namespace: holds an encrypted value")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestSchemaHasTheSpecOfTheCRDAndPatternsThatCompile(t *testing.T) {
	tenant := platform.Schema().Properties["tenants"].Items.Schema
	for _, key := range []string{"replicas", "etcdEndpoints", "leaseTTLSeconds", "image", "resources"} {
		require.Contains(t, tenant.Properties, key)
	}
	var walk func(schema *apiextensionsv1.JSONSchemaProps)
	walk = func(schema *apiextensionsv1.JSONSchemaProps) {
		_, err := regexp.Compile(schema.Pattern)
		require.NoError(t, err)
		for _, property := range schema.Properties {
			walk(&property)
		}
		if schema.Items != nil {
			walk(schema.Items.Schema)
		}
		if schema.AdditionalProperties != nil {
			walk(schema.AdditionalProperties.Schema)
		}
	}
	walk(platform.Schema())
}

func TestCommittedStacksAreValid(t *testing.T) {
	for _, stack := range []string{"dev", "prod"} {
		file := filepath.Join("..", "..", "Pulumi."+stack+".yaml")
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		values, err := platform.StackFile(data)
		require.NoError(t, err)
		_, err = platform.ParseConfig(values, nil)
		require.NoError(t, err, file)
	}
}
