package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The control plane's network namespace holds a bridge; each node's eth0 is the far end of a veth
// pair whose near end, named like the node, is a port of that bridge. There is no other link.

func controlPlaneLinks() []string {
	lines := []string{
		"link set lo up",
		"link add br0 type bridge",
		"addr add " + controlPlaneIP + "/24 dev br0",
		"link set br0 up",
		// kube-proxy translates service addresses, but only of packets that have a route.
		"route add " + serviceCIDR + " dev br0",
	}
	for i := 1; i <= MaxNodes; i++ {
		lines = append(lines, fmt.Sprintf("route add %s via %s", podSubnet(i), nodeIP(i)))
	}
	return lines
}

// nodePort adds node i's link, from the control plane's side.
func nodePort(i int, network string) []string {
	node := nodeName(i)
	return []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", node, network),
		fmt.Sprintf("link set %s master br0 up", node),
	}
}

// nodeLinks sets node i's side up. The routes to all possible nodes' pods are there from the start,
// so a node added later needs no change in the others. The control plane has no default route:
// what is meant for the world is refused at once.
func nodeLinks(i int) []string {
	lines := []string{
		"link set lo up",
		fmt.Sprintf("addr add %s/24 dev eth0", nodeIP(i)),
		"link set eth0 up",
		"route add default via " + controlPlaneIP,
	}
	for j := 1; j <= MaxNodes; j++ {
		if j != i {
			lines = append(lines, fmt.Sprintf("route add %s via %s", podSubnet(j), nodeIP(j)))
		}
	}
	return lines
}

// ensureControlPlaneNetwork makes the control plane's network unless it is there. The nodes' links
// went with the old one, so their networks are dropped too.
func (c *Cluster) ensureControlPlaneNetwork(ctx context.Context) error {
	network := c.layout.network(controlPlane)
	if isNetwork(network) {
		return nil
	}
	if err := c.deleteNetworks(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(network), 0o700); err != nil {
		return err
	}
	if err := createNetwork(network); err != nil {
		return err
	}
	err := ip(ctx, network, controlPlaneLinks())
	if err == nil {
		err = sysctl(network, map[string]string{"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "0"})
	}
	if err != nil { // half a network would pass for a whole one
		return errors.Join(err, deleteNetwork(network))
	}
	return nil
}

// ensureNodeNetwork makes node i's network unless it is there, and heals a partition.
func (c *Cluster) ensureNodeNetwork(ctx context.Context, i int) error {
	center, network := c.layout.network(controlPlane), c.layout.network(nodeName(i))
	if isNetwork(network) {
		return ip(ctx, center, []string{"link set " + nodeName(i) + " up"})
	}
	if err := createNetwork(network); err != nil {
		return err
	}
	// A link of that name is left when the node's namespace is still held by some process.
	_ = ip(ctx, center, []string{"link del " + nodeName(i)})
	err := ip(ctx, center, nodePort(i, network))
	if err == nil {
		err = ip(ctx, network, nodeLinks(i))
	}
	if err == nil {
		// Replies of a pod to its neighbour through a service pass the bridge only, and must be
		// translated back all the same.
		err = sysctl(network, map[string]string{"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"})
	}
	if err != nil {
		return errors.Join(err, deleteNetwork(network))
	}
	return nil
}

func (c *Cluster) deleteNetworks() error {
	files, err := filepath.Glob(c.layout.network("*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		errs = append(errs, deleteNetwork(file))
	}
	return errors.Join(errs...)
}

// ip runs commands of the `ip` tool in a network namespace, all or none after the first failure.
func ip(ctx context.Context, network string, lines []string) error {
	return inNetwork(network, func() error {
		cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip in network %s: %w: %s", filepath.Base(network), err, out)
		}
		return nil
	})
}

// sysctl sets kernel parameters of a network namespace. Those that the kernel does not have, for
// want of a module, keep their meaning without being set.
func sysctl(network string, values map[string]string) error {
	return inNetwork(network, func() error {
		for name, value := range values {
			err := os.WriteFile("/proc/sys/"+name, []byte(value), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("sysctl %s=%s in network %s: %w", name, value, filepath.Base(network), err)
			}
		}
		return nil
	})
}

// Partition cuts a node off from everything else, its API server included, until Heal. What runs
// on the node goes on running.
func (c *Cluster) Partition(ctx context.Context, node string) error {
	return c.setLink(ctx, node, "down")
}

// Heal ends a partition. On a node that is not cut off it does nothing.
func (c *Cluster) Heal(ctx context.Context, node string) error { return c.setLink(ctx, node, "up") }

func (c *Cluster) setLink(ctx context.Context, node, to string) error {
	if err := c.requireNode(node); err != nil {
		return err
	}
	return ip(ctx, c.layout.network(controlPlane), []string{"link set " + node + " " + to})
}

// partitioned says whether a node's link is down.
func (c *Cluster) partitioned(node string) bool {
	down := false
	err := inNetwork(c.layout.network(controlPlane), func() error {
		link, err := net.InterfaceByName(node)
		if err == nil {
			down = link.Flags&net.FlagUp == 0
		}
		return err
	})
	return err == nil && down
}
