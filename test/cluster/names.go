package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// The addresses are the same in every cluster: each has network namespaces of its own.
const (
	controlPlane   = "control-plane"
	controlPlaneIP = "10.88.255.1"
	apiPort        = "6443"
	apiServiceIP   = "10.96.0.1"
	dnsServiceIP   = "10.96.0.10"
	serviceCIDR    = "10.96.0.0/16"
	podCIDR        = "10.88.0.0/17"
	clusterDomain  = "cluster.local"

	// MaxNodes is the largest number of nodes of one cluster.
	MaxNodes = 16
)

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}[a-z0-9]$|^[a-z]$`)

func validateName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("cluster name %q: want 1 to 32 lower-case letters, digits and dashes, starting with a letter and not ending with a dash", name)
	}
	return nil
}

func validateNodes(nodes int) error {
	if nodes < 1 || nodes > MaxNodes {
		return fmt.Errorf("nodes %d: want 1 to %d", nodes, MaxNodes)
	}
	return nil
}

// nodeName names node i; nodes count from 1.
func nodeName(i int) string { return fmt.Sprintf("node%d", i) }

func nodeNames(nodes int) []string {
	names := make([]string, nodes)
	for i := range names {
		names[i] = nodeName(i + 1)
	}
	return names
}

func nodeIP(i int) string { return fmt.Sprintf("10.88.255.%d", 10+i) }

// podSubnet is the range that node i gives its pods addresses from.
func podSubnet(i int) string { return fmt.Sprintf("10.88.%d.0/24", i) }

// cgroupName is the cgroup, below the root of each hierarchy, that holds everything of a cluster.
// The hash keeps clusters of one name in two state folders apart.
func cgroupName(folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return filepath.Join("holdfast", filepath.Base(folder)+"-"+hex.EncodeToString(sum[:4]))
}

// DefaultStateDir is the folder that holds the state of all clusters unless told otherwise:
// $HOLDFAST_STATE, else ~/.local/state/holdfast.
func DefaultStateDir() string {
	if dir := os.Getenv("HOLDFAST_STATE"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root" // the cluster runs as root; a service may have no HOME
	}
	return filepath.Join(home, ".local", "state", "holdfast")
}
