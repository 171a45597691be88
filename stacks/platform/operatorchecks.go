package platform

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/stacks/internal/configschema"
)

// operatorChecks finds what the operator would not start with, and no schema can say. Stacks cannot import the operator's own
// rules (operator/internal/config): a test has both refuse the same values.
func operatorChecks(c *Config) []configschema.Problem {
	var problems []configschema.Problem
	add := func(message, path string, args ...any) {
		if message != "" {
			problems = append(problems, configschema.Problem{Path: fmt.Sprintf(path, args...), Message: message})
		}
	}
	add(lifetimeFault(c.LeaseService.TLS.CertificateLifetime), "leaseService.tls.certificateLifetime")
	if plain := c.LeaseService.TLS.Enabled != nil && !*c.LeaseService.TLS.Enabled; plain && c.LeaseService.ProvisionEtcd {
		add("is true, which needs leaseService.tls.enabled: passwords are derived from the same seed as certificates", "leaseService.provisionEtcd")
	}
	if c.ZooKeeper != nil {
		add(serversFault(c.ZooKeeper.ConnectString), "zookeeper.connectString")
		zooKeeperTLSChecks(c.ZooKeeper, add)
		for i, grant := range c.ZooKeeper.Grants {
			for j, ensemble := range grant.Ensembles {
				add(serversFault(ensemble), "zookeeper.grants[%d].ensembles[%d]", i, j)
			}
		}
	}
	if c.ReleaseGuard != nil {
		for i, namespace := range c.ReleaseGuard.Namespaces {
			if first := slices.Index(c.ReleaseGuard.Namespaces, namespace); first < i {
				add(fmt.Sprintf("%q is releaseGuard.namespaces[%d] already; list each once", namespace, first), "releaseGuard.namespaces[%d]", i)
			}
		}
		for i, address := range c.ReleaseGuard.Prometheus {
			add(addressFault(address), "releaseGuard.prometheus[%d]", i)
		}
	}
	return problems
}

func zooKeeperTLSChecks(zk *ZooKeeper, add func(message, path string, args ...any)) {
	if zk.TLS.Enabled && zk.ConnectString == "" {
		add("is true, which needs zookeeper.connectString: an object that names its own ensemble names its TLS too", "zookeeper.tls.enabled")
	}
	for _, key := range []struct{ name, value string }{{"secret", zk.TLS.Secret}, {"serverName", zk.TLS.ServerName}} {
		if !zk.TLS.Enabled && key.value != "" {
			add(fmt.Sprintf("is %q, which needs zookeeper.tls.enabled", key.value), "zookeeper.tls."+key.name)
		}
	}
	if name := zk.TLS.ServerName; name != "" && net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
		add(fmt.Sprintf("%q is not allowed; allowed are a DNS name in lower case and an IP address", name), "zookeeper.tls.serverName")
	}
}

const mostLifetime = 180 * 24 * time.Hour

// lifetimeFault looks at whole hours, as the schema has them, and so at an hour or more.
func lifetimeFault(text string) string {
	hours, found := strings.CutSuffix(text, "h")
	if _, err := strconv.ParseUint(hours, 10, 64); !found || errors.Is(err, strconv.ErrSyntax) {
		return ""
	}
	if lifetime, err := time.ParseDuration(text); err != nil || lifetime > mostLifetime {
		return fmt.Sprintf("%q is not allowed; allowed are 1h to %.0fh", text, mostLifetime.Hours())
	}
	return ""
}

// serversFault looks at the servers of a connect string, and not at its chroot.
func serversFault(connect string) string {
	servers, _, _ := strings.Cut(connect, "/")
	for server := range strings.SplitSeq(servers, ",") {
		if net.ParseIP(strings.Trim(server, "[]")) != nil { // an address without a port, which may have colons
			continue
		}
		host, port := server, "2181"
		if strings.Contains(server, ":") {
			var err error
			if host, port, err = net.SplitHostPort(server); err != nil {
				return fmt.Sprintf("%q is not allowed; allowed are servers as host:port, with an IPv6 address in brackets", connect)
			}
		}
		if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
			return fmt.Sprintf("%q has the port %q; allowed are 1 to 65535", connect, port)
		}
		if strings.ContainsAny(host, `@?#\`) || (host == "" && server != "") {
			return fmt.Sprintf("%q has the host %q, which is neither a name nor an address", connect, host)
		}
	}
	return ""
}

func addressFault(address string) string {
	if scheme, _, _ := strings.Cut(address, "://"); scheme != "http" && scheme != "https" { // the schema says so
		return ""
	}
	if parsed, err := url.Parse(address); err != nil || parsed.Host == "" {
		return fmt.Sprintf("%q is not allowed; allowed are URLs with a host, such as http://prometheus.monitoring:9090", address)
	}
	return ""
}
