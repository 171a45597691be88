package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

const (
	policyQueue = "100"
	policyChain = "HOLDFAST-POLICY"
)

// networkPolicy is the enforcer of a node's pods' NetworkPolicies.
func (l layout) networkPolicy(s settings, node string) component {
	return component{
		name: "kube-network-policies", path: s.networkPolicy,
		args: []string{"--kubeconfig=" + l.componentKubeconfig("network-policy"), "--node=" + node, "--queue=" + policyQueue},
	}
}

// policyRules hand the first packet of every connection of node i's pods to the enforcer; without
// one it is dropped. Excepted are the node's own programs, so that the kubelet's probes pass, and
// the control plane: the API server calls webhooks, and tests dial, from there.
func policyRules(i int) string {
	rules := []string{
		"-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN",
		"-m owner --uid-owner 0 -j RETURN",
		"-s " + controlPlaneIP + " -j RETURN",
		"-s " + podSubnet(i) + " -j NFQUEUE --queue-num " + policyQueue,
		"-d " + podSubnet(i) + " -j NFQUEUE --queue-num " + policyQueue,
	}
	lines := []string{"*mangle", ":" + policyChain + " - [0:0]"} // makes the chain, or empties it
	for _, rule := range rules {
		lines = append(lines, "-A "+policyChain+" "+rule)
	}
	return strings.Join(append(lines, "COMMIT"), "\n") + "\n"
}

// ensurePolicyRules puts the rules in node i's network.
func (c *Cluster) ensurePolicyRules(ctx context.Context, i int) error {
	return inNetwork(c.layout.network(nodeName(i)), func() error {
		restore := exec.CommandContext(ctx, "iptables-restore", "--wait", "--noflush")
		restore.Stdin = strings.NewReader(policyRules(i))
		if out, err := restore.CombinedOutput(); err != nil {
			return fmt.Errorf("iptables-restore on %s: %w: %s", nodeName(i), err, out)
		}
		jump := func(action string) error {
			cmd := exec.CommandContext(ctx, "iptables", "--wait", "--table", "mangle", action, "POSTROUTING", "--jump", policyChain)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("iptables on %s: %w: %s", nodeName(i), err, out)
			}
			return nil
		}
		var absent *exec.ExitError
		if err := jump("--check"); !errors.As(err, &absent) {
			return err
		}
		return jump("--append")
	})
}
