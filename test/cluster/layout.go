package cluster

import "path/filepath"

// layout says where in a cluster's folder everything is.
type layout struct{ folder string }

func layoutOf(stateDir, name string) layout {
	return layout{folder: filepath.Join(stateDir, "clusters", name)}
}

func (l layout) name() string       { return filepath.Base(l.folder) }
func (l layout) state() string      { return filepath.Join(l.folder, "state.json") }
func (l layout) pki() string        { return filepath.Join(l.folder, "pki") }
func (l layout) logs() string       { return filepath.Join(l.folder, "logs") }
func (l layout) images() string     { return filepath.Join(l.folder, "images") }
func (l layout) volumes() string    { return filepath.Join(l.folder, "volumes") }
func (l layout) etcd() string       { return filepath.Join(l.folder, "etcd") }
func (l layout) kubeconfig() string { return filepath.Join(l.folder, "kubeconfig") }

// network is the file that holds a machine's network namespace.
func (l layout) network(machine string) string {
	return filepath.Join(l.folder, "networks", machine)
}

// machineDir is a folder of one machine's own.
func (l layout) machineDir(machine, dir string) string {
	return filepath.Join(l.folder, "machines", machine, dir)
}

// log is the log of a component, or of the machine itself when the component is empty.
func (l layout) log(machine, component string) string {
	if component == "" {
		return filepath.Join(l.logs(), machine+".log")
	}
	return filepath.Join(l.logs(), machine, component+".log")
}

func (l layout) image(sha256 string) string {
	return filepath.Join(l.images(), sha256+".tar")
}

func (l layout) componentKubeconfig(cert string) string {
	return filepath.Join(l.pki(), cert+".kubeconfig")
}
