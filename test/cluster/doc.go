// Package cluster runs a real Kubernetes cluster on one Linux machine: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, and for each node containerd, kubelet and kube-proxy,
// with CoreDNS and a default storage class on top. It needs root and takes seconds to start.
//
// The cluster is made of machines: one for the control plane and one for each node. A machine is
// a set of Linux namespaces (network, mount, process, UTS, IPC) held by one process, its init.
// Killing the init ends every process of the machine and drops its mounts, so a cluster is taken
// down by as many signals as it has machines, and none of its processes can escape.
//
// All traffic of the cluster stays in the network namespaces made for it: the host has no
// interface and no route into them. Programs on the host come in by Cluster.DialContext, which
// opens a socket inside the control plane's namespace, or by a forwarder that listens on 127.0.0.1
// and does the same.
//
// Everything a cluster is lives in one folder: state, keys, logs, etcd's data, the nodes' images
// and volumes, and the files that hold the network namespaces. Processes are recorded with their
// start time, and a recorded process is signalled only if both still agree.
package cluster
