package platform

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-io/holdfast/components"
	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
	"github.com/holdfast-io/holdfast/stacks/internal/selfservice"
)

// crossChecks finds what no schema can: rules that tie several keys together.
func crossChecks(c *Config) []configschema.Problem {
	names := map[string]string{}
	namespaces, problems := claimPlatformNamespaces(c)
	for i := range c.Tenants {
		tenant := &c.Tenants[i]
		path := configschema.Item("tenants", i, map[string]any{"name": tenant.Name})
		before := len(problems)
		problems = claim(problems, names, path, "name", tenant.Name)
		if len(problems) == before || tenant.Namespace != tenant.Name { // one problem for one mistake
			problems = claimNamespace(problems, namespaces, path, tenant.Namespace, tenant.CreateNamespace)
		}
		for _, rule := range []tenantRule{checkEtcd, checkReplicas, checkStorage, checkQuota} {
			if key, message := rule(c, tenant); message != "" {
				problems = append(problems, configschema.Problem{Path: configschema.Field(path, key), Message: message})
			}
		}
	}
	problems = append(problems, checkSpaces(c, namespaces)...)
	problems = append(problems, operatorChecks(c)...)
	problems = append(problems, repositoryChecks(c)...)
	return append(problems, gitOpsChecks(c)...)
}

func gitOpsChecks(c *Config) []configschema.Problem {
	var problems []configschema.Problem
	add := func(path, format string, args ...any) {
		problems = append(problems, configschema.Problem{Path: path, Message: fmt.Sprintf(format, args...)})
	}
	if owned := gitOpsOwned(c); len(owned) > 0 && c.GitOps == nil {
		add("gitops", "is missing, but GitOps is the owner by %s: say which repository it keeps", strings.Join(owned, ", "))
	}
	if c.Ownership == OwnershipGitOps && c.ArgoCD != nil {
		add("argocd", "is an Application that Pulumi owns, but ownership is gitops: put the Application into Git, or leave argocd out")
	}
	if g := c.GitOps; g != nil && g.Flavour == components.GitOpsFlux {
		for _, key := range []struct {
			name string
			set  bool
		}{{"installHealth", g.InstallHealth}, {"revisionManagedByGuard", g.RevisionManagedByGuard}} {
			if key.set {
				add("gitops."+key.name, "is true, but is for flavour argocd only; leave it out")
			}
		}
	}
	if g := c.GitOps; g != nil && g.Flavour == components.GitOpsArgoCD && g.SecretName != "" {
		add("gitops.secretName", "%q is for flavour flux only: Argo CD finds credentials by the repository's URL", g.SecretName)
	}
	return problems
}

var (
	userInURL = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)@`)
	overHTTP  = regexp.MustCompile(`(?i)^https?$`)
)

// repositoryChecks refuses credentials in the URL of a repository: it is written into objects that many may read, into the
// stack's state and into messages. A user of SSH, such as "git", is none.
func repositoryChecks(c *Config) []configschema.Problem {
	var problems []configschema.Problem
	check := func(path, url, instead string) {
		user := userInURL.FindStringSubmatch(url)
		if user == nil || !overHTTP.MatchString(user[1]) && !strings.Contains(user[2], ":") {
			return
		}
		problems = append(problems, configschema.Problem{
			Path: path, Message: "has credentials in it, which everybody could read who may see the objects made from it: leave out what is before the @; " + instead,
		})
	}
	const argoSecret = "Argo CD finds them by the URL, in a Secret of its own"
	if c.GitOps != nil {
		instead := argoSecret
		if c.GitOps.Flavour == components.GitOpsFlux {
			instead = "name a Secret with them in gitops.secretName"
		}
		check("gitops.repoURL", c.GitOps.RepoURL, instead)
	}
	if c.ArgoCD != nil {
		check("argocd.repoURL", c.ArgoCD.RepoURL, argoSecret)
	}
	return problems
}

// gitOpsOwned lists the keys by which GitOps owns something.
func gitOpsOwned(c *Config) []string {
	var keys []string
	if c.Ownership == OwnershipGitOps {
		keys = append(keys, "ownership")
	}
	for i := range c.Tenants {
		if t := &c.Tenants[i]; t.Ownership == OwnershipGitOps && c.Ownership != OwnershipGitOps {
			path := configschema.Item("tenants", i, map[string]any{"name": t.Name})
			keys = append(keys, configschema.Field(path, "ownership"))
		}
	}
	return keys
}

// tenantRule returns the key at fault and what is wrong with it, or an empty message.
type tenantRule func(*Config, *Tenant) (key, message string)

func checkEtcd(c *Config, t *Tenant) (key, message string) {
	switch {
	case t.UseDevEtcd && len(t.EtcdEndpoints) > 0:
		return "useDevEtcd", "cannot be true together with etcdEndpoints; keep one of them"
	case t.UseDevEtcd && c.DevEtcd == nil:
		return "useDevEtcd", "is true, but the stack has no devEtcd; configure holdfast:devEtcd or give etcdEndpoints"
	case t.Autoscaled && !t.UseDevEtcd && len(t.EtcdEndpoints) == 0:
		return "etcdEndpoints", "is missing, but replicas that an autoscaler adds need an etcd they share"
	case t.Replicas > 1 && !t.UseDevEtcd && len(t.EtcdEndpoints) == 0:
		return "etcdEndpoints", fmt.Sprintf(
			"is missing, but %d replicas need an etcd they share; only 1 replica may run an etcd of its own", t.Replicas)
	default:
		return "", ""
	}
}

func checkReplicas(_ *Config, t *Tenant) (key, message string) {
	if t.Autoscaled && t.Replicas != 0 {
		return "replicas", fmt.Sprintf("%d cannot be set together with autoscaled: the autoscaler owns the number", t.Replicas)
	}
	return "", ""
}

func checkStorage(_ *Config, t *Tenant) (key, message string) {
	if t.Storage != nil && (t.UseDevEtcd || len(t.EtcdEndpoints) > 0) {
		return "storage", "is the volume of a replica's own etcd; leave it out, since the tenant uses another etcd"
	}
	return "", ""
}

// checkQuota finds compute resources that the quota counts and the pods do not declare: Kubernetes would refuse the pods.
func checkQuota(_ *Config, t *Tenant) (key, message string) {
	missing := selfservice.Undeclared(t.Quota, t.Resources)
	if len(missing) == 0 {
		return "", ""
	}
	return "resources", "must set " + strings.Join(missing, ", ") + ", which quota counts: pods without it are refused"
}
