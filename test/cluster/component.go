package cluster

import (
	"path/filepath"
	"strings"
)

// settings are the choices that the components' arguments depend on.
type settings struct {
	binDir          string
	cniDir          string
	containerd      string
	fastNodeFailure bool
	networkPolicy   string // the enforcer; empty: none
}

// component is one program of a machine.
type component struct {
	name   string
	path   string
	args   []string
	health string // URL inside the machine's network namespace; empty: running is healthy
}

// controlPlaneFirst are the components that start at once; etcd and the API server find each other.
func (l layout) controlPlaneFirst(s settings) []component {
	const etcdClient, etcdPeer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	etcd := component{name: "etcd", path: filepath.Join(s.binDir, "etcd"), health: etcdClient + "/health", args: []string{
		"--name=etcd", "--data-dir=" + l.etcd(), "--log-level=warn",
		"--listen-client-urls=" + etcdClient, "--advertise-client-urls=" + etcdClient,
		"--listen-peer-urls=" + etcdPeer, "--initial-advertise-peer-urls=" + etcdPeer, "--initial-cluster=etcd=" + etcdPeer,
		"--unsafe-no-fsync", // the cluster is there to be thrown away
	}}
	pki := l.pki() + "/"
	api := component{name: "kube-apiserver", path: filepath.Join(s.binDir, "kube-apiserver"), args: []string{
		"--etcd-servers=" + etcdClient, "--bind-address=0.0.0.0", "--secure-port=" + apiPort, "--advertise-address=" + controlPlaneIP,
		"--service-cluster-ip-range=" + serviceCIDR, "--allow-privileged=true",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + pki + "ca.crt", "--tls-cert-file=" + pki + "apiserver.crt", "--tls-private-key-file=" + pki + "apiserver.key",
		"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
		"--service-account-key-file=" + pki + "sa.pub", "--service-account-signing-key-file=" + pki + "sa.key",
		"--kubelet-client-certificate=" + pki + "kubelet-client.crt", "--kubelet-client-key=" + pki + "kubelet-client.key",
		"--kubelet-certificate-authority=" + pki + "ca.crt", "--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file=" + pki + "front-proxy-ca.crt", "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + pki + "front-proxy-client.crt", "--proxy-client-key-file=" + pki + "front-proxy-client.key",
		"--enable-aggregator-routing=true", // webhooks and aggregated APIs are reached by pod address
	}}
	if s.fastNodeFailure {
		api.args = append(api.args, "--default-not-ready-toleration-seconds=4", "--default-unreachable-toleration-seconds=4")
	}
	return []component{etcd, api}
}

// controlPlaneThen are the components that need a ready API server to start, and what those need.
func (l layout) controlPlaneThen(s settings) []component {
	return []component{l.volumeOpener(), l.controllerManager(s), l.scheduler(s), l.kubeProxy(s, controlPlane)}
}

func (l layout) controllerManager(s settings) component {
	pki := l.pki() + "/"
	grace, period := "40s", "5s"
	if s.fastNodeFailure {
		grace, period = "8s", "1s"
	}
	return component{
		name: "kube-controller-manager", path: filepath.Join(s.binDir, "kube-controller-manager"), health: "https://127.0.0.1:10257/healthz",
		args: append(l.clientArgs("controller-manager"),
			"--leader-elect=false", "--use-service-account-credentials=true",
			"--root-ca-file="+pki+"ca.crt", "--service-account-private-key-file="+pki+"sa.key",
			"--cluster-signing-cert-file="+pki+"ca.crt", "--cluster-signing-key-file="+pki+"ca.key",
			"--client-ca-file="+pki+"ca.crt", "--requestheader-client-ca-file="+pki+"front-proxy-ca.crt",
			"--enable-hostpath-provisioner=true", "--allocate-node-cidrs=false",
			"--cluster-cidr="+podCIDR, "--service-cluster-ip-range="+serviceCIDR,
			"--node-monitor-grace-period="+grace, "--node-monitor-period="+period),
	}
}

func (l layout) scheduler(s settings) component {
	return component{
		name: "kube-scheduler", path: filepath.Join(s.binDir, "kube-scheduler"), health: "https://127.0.0.1:10259/healthz",
		args: append(l.clientArgs("scheduler"), "--leader-elect=false"),
	}
}

// clientArgs are those of a control plane component that is a client of the API server. With the
// default rate limits, starting the controllers alone takes 6 s.
func (l layout) clientArgs(cert string) []string {
	file := l.componentKubeconfig(cert)
	return []string{
		"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file,
		"--bind-address=127.0.0.1", "--kube-api-qps=500", "--kube-api-burst=1000",
	}
}

func (l layout) kubeProxy(s settings, machine string) component {
	return component{
		name: "kube-proxy", path: filepath.Join(s.binDir, "kube-proxy"), health: "http://127.0.0.1:10256/healthz",
		args: []string{"--config=" + l.machineDir(machine, "etc/kube-proxy.yaml")},
	}
}

func (l layout) containerd(s settings, node string) component {
	return component{
		name: "containerd", path: s.containerd,
		args: []string{"--config=" + l.machineDir(node, "etc/containerd.toml")},
	}
}

func (l layout) kubelet(s settings, i int) component {
	node := nodeName(i)
	return component{
		name: "kubelet", path: filepath.Join(s.binDir, "kubelet"), health: "http://127.0.0.1:10248/healthz",
		args: []string{
			"--config=" + l.machineDir(node, "etc/kubelet.yaml"), "--kubeconfig=" + l.componentKubeconfig(node),
			"--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki", "--hostname-override=" + node, "--node-ip=" + nodeIP(i),
		},
	}
}

// components lists everything that runs in a machine, in the order of start.
func (l layout) components(s settings, machine string) []component {
	if machine == controlPlane {
		return append(l.controlPlaneFirst(s), l.controlPlaneThen(s)...)
	}
	i := nodeIndex(machine)
	all := []component{l.containerd(s, machine), l.kubelet(s, i), l.kubeProxy(s, machine)}
	if s.networkPolicy != "" {
		all = append(all, l.networkPolicy(s, machine))
	}
	return all
}

// nodeIndex is the number of a node by its name, 0 when it is no node's name.
func nodeIndex(name string) int {
	for i := 1; i <= MaxNodes; i++ {
		if nodeName(i) == name {
			return i
		}
	}
	return 0
}

// logName is how people name a component: etcd, but node1/kubelet.
func logName(machine, component string) string {
	return strings.TrimPrefix(machine+"/"+component, controlPlane+"/")
}
