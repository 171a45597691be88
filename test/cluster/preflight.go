package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// requirement is a program that the host must have and the Debian package that has it.
type requirement struct{ program, debian string }

var requirements = []requirement{
	{"ip", "iproute2"},
	{"iptables", "iptables"},
	{"conntrack", "conntrack"},
	{"mount", "mount"},
	{"nsenter", "util-linux"},
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
}

// binaries are the programs that the bin folder must have.
var binaries = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
	"coredns", "pause", "image",
}

var (
	cniPlugins = []string{"bridge", "host-local", "loopback", "portmap"}
	cniDirs    = []string{"/usr/lib/cni", "/opt/cni/bin"}
)

// preflight names everything that is missing at once.
func preflight(binDir string, networkPolicy string) error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("the cluster needs root: run it with sudo"))
	}
	for _, r := range requirements {
		if findProgram(r.program) == "" {
			errs = append(errs, fmt.Errorf("%s is not installed (Debian package %s)", r.program, r.debian))
		}
	}
	if findCNI() == "" {
		errs = append(errs, fmt.Errorf("the CNI plugins %s are in none of %s (Debian package containernetworking-plugins)",
			strings.Join(cniPlugins, ", "), strings.Join(cniDirs, ", ")))
	}
	if binDir == "" {
		errs = append(errs, errors.New("no folder of Kubernetes programs: give --bin-dir or set HOLDFAST_KUBE_BIN (tools/build.sh kubernetes builds and prints it)"))
	} else if missing := missingBinaries(binDir); len(missing) > 0 {
		errs = append(errs, fmt.Errorf("%s has no program %s (tools/build.sh kubernetes builds them and prints their folder)", binDir, strings.Join(missing, ", ")))
	}
	if networkPolicy != "" && unix.Access(networkPolicy, unix.X_OK) != nil {
		errs = append(errs, fmt.Errorf("%s: no such program (tools/build.sh netpol builds kube-network-policies)", networkPolicy))
	}
	if _, err := cgroupHierarchies(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func missingBinaries(dir string) []string {
	var missing []string
	for _, name := range binaries {
		if unix.Access(filepath.Join(dir, name), unix.X_OK) != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// loadModules asks for the kernel modules that the nodes use. A kernel that has them built in, or
// a host that may not load any, says no; what is really missing shows as a failing component.
func loadModules() {
	for _, module := range []string{"overlay", "br_netfilter"} {
		_ = exec.Command("modprobe", "--quiet", module).Run()
	}
}

// findProgram looks a program up where the machines will, or returns "".
func findProgram(name string) string {
	path, _ := strings.CutPrefix(machineEnv[0], "PATH=")
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); unix.Access(file, unix.X_OK) == nil {
			return file
		}
	}
	return ""
}

func findContainerd() string { return findProgram("containerd") }

// findCNI returns the folder that has all plugins, or "".
func findCNI() string {
	for _, dir := range cniDirs {
		complete := true
		for _, plugin := range cniPlugins {
			complete = complete && exists(filepath.Join(dir, plugin))
		}
		if complete {
			return dir
		}
	}
	return ""
}
