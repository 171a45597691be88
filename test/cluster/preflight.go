package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// inotifyInstances is how many inotify instances root may have at least. The kernel's default of 128 is for the whole host, and
// the kubelet, containerd and kube-proxy of three or four nodes use them up.
const inotifyInstances = 1024

// raiseInotify raises the limit in the file, unless it is high enough. No network namespace has one of its own, so it is the
// host's, and it stays: other programs may rely on it by the time the cluster goes.
func raiseInotify(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("limit of inotify instances: %w", err)
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("limit of inotify instances in %s: %w", file, err)
	}
	if limit >= inotifyInstances {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(inotifyInstances)), 0); err != nil {
		return fmt.Errorf("raise the limit of inotify instances from %d to %d: %w", limit, inotifyInstances, err)
	}
	return nil
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
