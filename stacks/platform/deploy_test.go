package platform_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

const twoTenants = `[{"name": "team-a", "replicas": 2, "useDevEtcd": true}, {"name": "team-b", "namespace": "b"}]`

func program(t *testing.T, changes map[string]string) pulumi.RunFunc {
	t.Helper()
	config, err := platform.ParseConfig(values(changes), nil)
	require.NoError(t, err)
	return func(ctx *pulumi.Context) error { return platform.Deploy(ctx, config) }
}

func recordStack(t *testing.T, changes map[string]string) map[string]render.Resource {
	t.Helper()
	resources, err := render.Record(program(t, changes))
	require.NoError(t, err)
	byName := map[string]render.Resource{}
	for _, res := range resources {
		kind := res.Type[strings.LastIndex(res.Type, ":")+1:]
		byName[kind+" "+res.Name] = res
	}
	return byName
}

func TestDeployOrdersTenantsAroundTheOperator(t *testing.T) {
	stack := recordStack(t, map[string]string{"devEtcd": `{"image": "holdfast.local/etcd:dev"}`, "tenants": twoTenants})
	deployment := stack["Deployment holdfast-deployment"]
	require.NotEmpty(t, deployment.URN)
	for tenant, namespace := range map[string]string{"team-a": "team-a", "team-b": "b"} {
		binding, made := stack["RoleBinding "+tenant+"-operator-rolebinding"], stack["Namespace "+tenant+"-namespace"]
		marker := stack["ConfigMap holdfast-watch-"+namespace]
		require.NotEmpty(t, marker.URN)
		require.Contains(t, stack["TenantSpace "+tenant].Dependencies, marker.URN,
			"when the tenant goes, the operator watches until the namespace has gone")
		require.Contains(t, stack["TenantSpace "+tenant].Dependencies, deployment.URN)
		require.Equal(t, made.URN, binding.DeletedWith, "the Role goes with the namespace, and not before its objects do")
		component, service := stack["LeaseTenant "+tenant], stack["LeaseService "+tenant+"-leaseservice"]
		require.Equal(t, component.URN, service.Parent)
		require.Contains(t, component.Dependencies, deployment.URN)
		require.Contains(t, component.Dependencies, binding.URN,
			"only this keeps the Role until the object is gone")
		require.Contains(t, component.Dependencies, stack["StatefulSet dev-etcd-statefulset"].URN)
	}
	require.Contains(t, deployment.Dependencies, stack["CustomResourceDefinition holdfast-crd-leaseservices"].URN)
}

// What gives a tenant rights in the whole cluster is among the platform's manifests: Argo CD may apply none of it from a tenant's folder.
func TestTheReviewersOfTokensAreThePlatforms(t *testing.T) {
	for _, ownership := range []string{"pulumi", "gitops"} {
		config, err := platform.ParseConfig(values(map[string]string{
			"ownership": ownership, "gitops": `{"flavour": "argocd", "repoURL": "https://git.example.com/x.git", "path": "p"}`,
			"tenants": `[{"name": "team-a", "namespace": "a", "auth": {"tokenReview": true}}, {"name": "team-b"}]`,
		}), nil)
		require.NoError(t, err)
		manifests, err := platform.RenderManifests(config)
		require.NoError(t, err)
		var paths []string
		for _, manifest := range manifests {
			if manifest.Object["kind"] == "ClusterRoleBinding" {
				paths = append(paths, manifest.Path)
			}
		}
		require.Equal(t, []string{
			"holdfast-system/10-clusterrolebinding-holdfast-operator-holdfast-system.yaml",
			"holdfast-system/10-clusterrolebinding-holdfast-platform-token-review-a-team-a.yaml",
		}, paths)
	}
}

func TestDeployGivesTheDevelopmentEtcdToWhoAsks(t *testing.T) {
	stack := recordStack(t, map[string]string{
		"devEtcd": `{"image": "holdfast.local/etcd:dev", "namespace": "store"}`, "tenants": twoTenants,
	})
	spec := func(name string) map[string]any {
		fields, _ := stack["LeaseService "+name].Fields["spec"].(map[string]any)
		return fields
	}
	require.Equal(t, []any{"http://etcd.store.svc:2379"}, spec("team-a-leaseservice")["etcdEndpoints"])
	require.Equal(t, int64(2), spec("team-a-leaseservice")["replicas"])
	require.NotContains(t, spec("team-b-leaseservice"), "etcdEndpoints")
	require.NotContains(t, recordStack(t, nil), "StatefulSet dev-etcd-statefulset")
}

func TestDeployTellsTheOperatorItsNamespaces(t *testing.T) {
	stack := recordStack(t, map[string]string{"tenants": `[{"name": "team-a"}, {"name": "team-b", "namespace": "b"}]`})
	data, _ := stack["ConfigMap holdfast-configmap"].Fields["data"].(map[string]any)
	require.Contains(t, data["operator.yaml"], "namespaces: []\nnamespacesFromConfigMaps: true\n")
	for _, namespace := range []string{"team-a", "b"} {
		metadata, _ := stack["ConfigMap holdfast-watch-"+namespace].Fields["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		require.Equal(t, namespace, labels["dist.system/watch-namespace"])
		require.Equal(t, "holdfast-system", metadata["namespace"])
	}
}

func TestDeployTellsTheOperatorOfZooKeeper(t *testing.T) {
	stack := recordStack(t, map[string]string{"zookeeper": `{
		"connectString": "zk-0:2181,zk-1:2181/apps", "credentialSecret": "zookeeper",
		"tls": {"enabled": true, "secret": "zookeeper-tls", "serverName": "zk.example.com"},
		"grants": [{"namespaces": ["*"], "ensembles": ["zk-0:2181"], "paths": ["/", "/teams/{namespace}"]}]
	}`})
	data, _ := stack["ConfigMap holdfast-configmap"].Fields["data"].(map[string]any)
	require.Contains(t, data["operator.yaml"], `zookeeper:
  connectString: zk-0:2181,zk-1:2181/apps
  credentialFolder: /etc/holdfast-zookeeper
  grants:
  - ensembles:
    - zk-0:2181
    namespaces:
    - '*'
    paths:
    - /
    - /teams/{namespace}
  tls:
    enabled: true
    folder: /etc/holdfast-zookeeper-tls
    serverName: zk.example.com
`)
}

func TestDeployDropsCRDsOnlyWhenAsked(t *testing.T) {
	const crd = "CustomResourceDefinition holdfast-crd-leaseservices"
	require.True(t, recordStack(t, nil)[crd].RetainOnDelete)
	require.False(t, recordStack(t, map[string]string{"crds": `{"retainOnDelete": false}`})[crd].RetainOnDelete)
}

func TestDeployInAnExistingNamespace(t *testing.T) {
	stack := recordStack(t, map[string]string{"tenants": `[{"name": "team-a", "createNamespace": false}]`})
	require.NotContains(t, stack, "Namespace team-a-namespace")
}

func TestDeployOutputs(t *testing.T) {
	outputs := make(chan string, 1)
	deploy := program(t, map[string]string{"tenants": `[{"name": "team-a", "namespace": "apps"}]`})
	_, err := render.Record(func(ctx *pulumi.Context) error {
		if err := deploy(ctx); err != nil {
			return err
		}
		exports := ctx.GetCurrentExportMap()
		pulumi.All(exports["namespace"], exports["operatorImage"], exports["tenants"]).ApplyT(func(all []any) string {
			outputs <- fmt.Sprintln(all...)
			return ""
		})
		return nil
	})
	require.NoError(t, err)
	require.Equal(t,
		"holdfast-system holdfast.local/operator:1 map[team-a:map[endpoint:team-a.apps.svc:7400 name:team-a namespace:apps]]\n", <-outputs)
}

func TestRenderingIsDeterministic(t *testing.T) {
	changes := map[string]string{
		"devEtcd": `{"image": "holdfast.local/etcd:dev"}`, "tenants": twoTenants,
		"argocd": `{"repoURL": "https://git.example.com/tenants.git", "path": "apps"}`,
	}
	var first []render.Manifest
	for range 3 {
		resources, err := render.Record(program(t, changes))
		require.NoError(t, err)
		manifests, err := render.Manifests(resources)
		require.NoError(t, err)
		if first == nil {
			first = manifests
			continue
		}
		require.Equal(t, first, manifests)
	}
	paths := make([]string, 0, len(first))
	for _, manifest := range first {
		paths = append(paths, manifest.Path)
		require.NotContains(t, string(manifest.Content), "pulumi.com/")
	}
	require.True(t, slices.IsSorted(paths))
	require.Contains(t, paths, "crds/00-customresourcedefinition-leaseservices.dist.system.yaml")
	require.Contains(t, paths, "b/14-leaseservice-team-b.yaml")
	require.Contains(t, paths, "holdfast-system/11-deployment-holdfast-operator.yaml")
}
