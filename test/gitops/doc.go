// Package gitops runs for tests what keeps a cluster as Git says: the real controllers of Argo CD and of Flux, each a
// process of its own against the cluster of a kubeconfig, and a Git server. Everything ends with the test, and everything
// that one part asks of another stays on the loopback interface. tools/build.sh argocd flux builds the controllers;
// tools/debian-packages.sh gitops installs redis-server, which Argo CD keeps its cache in, and Prometheus.
package gitops
