package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// DialContext connects to an address inside the cluster: that of a pod, a service or a node, or
// 127.0.0.1 for the control plane's own. A host name is looked up by the cluster's DNS service; it
// has the form service.namespace.svc, pod.service.namespace.svc, or either with .cluster.local.
// The socket belongs to the control plane's network namespace, which the rest of the process never
// enters. The method fits http.Transport.DialContext.
func (c *Cluster) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	if net.ParseIP(host) != nil {
		return c.dialIP(ctx, controlPlane, network, address)
	}
	ips, err := c.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	var errs []error
	for _, ip := range ips {
		conn, err := c.dialIP(ctx, controlPlane, network, net.JoinHostPort(ip, port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// DialTarget is DialContext for TCP, in the form that grpc.WithContextDialer takes. The target
// needs the scheme "passthrough:///", else gRPC looks the name up on the host.
func (c *Cluster) DialTarget(ctx context.Context, address string) (net.Conn, error) {
	return c.DialContext(ctx, "tcp", address)
}

// Listen listens on a free port of the control plane's address, which pods reach. What the process serves there is its own
// in every other respect: it answers a pod, and sees the host's network.
func (c *Cluster) Listen(ctx context.Context) (listener net.Listener, err error) {
	err = inNetwork(c.layout.network(controlPlane), func() (err error) {
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(controlPlaneIP, "0"))
		return err
	})
	return listener, err
}

// dialIP connects from a machine's network namespace. With an address that is not a name the
// dialer makes its socket on the calling thread.
func (c *Cluster) dialIP(ctx context.Context, machine, network, address string) (conn net.Conn, err error) {
	err = inNetwork(c.layout.network(machine), func() (err error) {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// lookup asks the cluster's DNS service for the addresses of a name.
func (c *Cluster) lookup(ctx context.Context, host string) ([]string, error) {
	name, err := qualify(host)
	if err != nil {
		return nil, err
	}
	resolver := net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return c.dialIP(ctx, controlPlane, network, net.JoinHostPort(dnsServiceIP, "53"))
		},
	}
	addrs, err := resolver.LookupIP(ctx, "ip4", name)
	if err != nil {
		return nil, err
	}
	ips := make([]string, len(addrs))
	for i, addr := range addrs {
		ips[i] = addr.String()
	}
	return ips, nil
}

// qualify makes a cluster name absolute.
func qualify(host string) (string, error) {
	switch name := strings.TrimSuffix(host, "."); {
	case strings.HasSuffix(name, ".svc"):
		return name + "." + clusterDomain + ".", nil
	case strings.HasSuffix(name, ".svc."+clusterDomain):
		return name + ".", nil
	}
	return "", fmt.Errorf("host %q: want an IP address or a name of the cluster, like service.namespace.svc", host)
}
