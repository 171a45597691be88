package cluster

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed templates
var templateFiles embed.FS

// nodeConfig is what a node's configuration files depend on.
type nodeConfig struct {
	Node            string
	PodSubnet       string
	Cgroup          string
	Dir             string // the node's configuration files
	PKI             string
	Kubeconfig      string // kube-proxy's
	CNIDir          string // the CNI plugins
	FastNodeFailure bool

	ClusterDomain string
	DNSServiceIP  string
	PodCIDR       string
}

// kubeconfig is what a kubeconfig depends on; the last three are base64.
type kubeconfig struct {
	Name, Server, User string
	CA, Cert, Key      string
}

func render(name string, data any) ([]byte, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(templateFiles, "templates/"+name)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("template %s: %w", name, err)
	}
	return b.Bytes(), nil
}

// nodeConfig describes node i of the cluster.
func (l layout) nodeConfig(s settings, i int) nodeConfig {
	node := nodeName(i)
	return nodeConfig{
		Node: node, PodSubnet: podSubnet(i), Cgroup: filepath.Join(cgroupName(l.folder), node),
		Dir: l.machineDir(node, "etc"), PKI: l.pki(), Kubeconfig: l.componentKubeconfig("proxy"),
		CNIDir: s.cniDir, FastNodeFailure: s.fastNodeFailure,
		ClusterDomain: clusterDomain, DNSServiceIP: dnsServiceIP, PodCIDR: podCIDR,
	}
}

// writeNodeConfig writes the configuration files of one node.
func writeNodeConfig(c nodeConfig) error {
	if err := os.MkdirAll(filepath.Join(c.Dir, "cni"), 0o755); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml",
		"kube-proxy.yaml": "kube-proxy.yaml", "10-bridge.conflist": "cni/10-bridge.conflist",
	} {
		content, err := render(name, c)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(c.Dir, target), content, 0o644); err != nil {
			return err
		}
	}
	// Pods with dnsPolicy Default get this: there is no name server outside the cluster.
	return writeFile(filepath.Join(c.Dir, "resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644)
}

// writeControlPlaneConfig writes the control plane's kube-proxy configuration: it translates
// service addresses for those who dial from the control plane's namespace, the API server among
// them. kube-proxy asks for a node; node 1 always exists.
func (l layout) writeControlPlaneConfig(s settings) error {
	dir := l.machineDir(controlPlane, "etc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	content, err := render("kube-proxy.yaml", l.nodeConfig(s, 1))
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "kube-proxy.yaml"), content, 0o644)
}

// writeKubeconfig writes a kubeconfig for the holder of a certificate of the cluster.
func (l layout) writeKubeconfig(file, server, cert string) error {
	k := kubeconfig{Name: l.name(), Server: server, User: cert}
	for field, name := range map[*string]string{&k.CA: "ca.crt", &k.Cert: cert + ".crt", &k.Key: cert + ".key"} {
		b, err := os.ReadFile(filepath.Join(l.pki(), name))
		if err != nil {
			return err
		}
		*field = base64.StdEncoding.EncodeToString(b)
	}
	content, err := render("kubeconfig.yaml", k)
	if err != nil {
		return err
	}
	return writeFile(file, content, 0o600)
}

// writeComponentKubeconfigs writes those that the components use inside the cluster.
func (l layout) writeComponentKubeconfigs(nodes int) error {
	server := "https://" + controlPlaneIP + ":" + apiPort
	for _, cert := range append([]string{"controller-manager", "scheduler", "proxy", "network-policy"}, nodeNames(nodes)...) {
		if err := l.writeKubeconfig(l.componentKubeconfig(cert), server, cert); err != nil {
			return err
		}
	}
	return nil
}
