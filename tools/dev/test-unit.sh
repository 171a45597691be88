#!/usr/bin/env bash
# `make test-unit`: every test but the end-to-end ones. They run a real etcd and a real API server on loopback.
# With RACE=1 under the race detector, which makes them several times slower: what runs at once has to be there, not fast.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$root/tools/debian-packages.sh" build zookeeper
KUBEBUILDER_ASSETS=$("$root/tools/build.sh" kubernetes)
export KUBEBUILDER_ASSETS
cd "$root"
step 'Unit tests'
# Those that wait the longest begin first, so that none is left alone at the end: go test starts packages as they are named.
longest=(
  ./test/robustness ./operator/internal/lease/service ./operator/internal/controller/leaseservice/acceptance ./operator/internal/controller/zookeeperconfig/acceptance
  ./operator/lease ./operator/internal/controller/releaseguard/acceptance ./operator/internal/zookeeper ./operator/internal/reconcile/testkit
)
(($#)) || set -- "${longest[@]}" ./...
if asked RACE; then
  tools/debian-packages.sh race
  CGO_ENABLED=1 go test -race -p 2 -timeout 60m "$@"
  exit
fi
# Two packages at a time: each may run an API server or an etcd of its own.
go test -p 2 -timeout 15m "$@"
step 'Tests of the tools'
(cd tools/kubernetes && GOFLAGS=-mod=readonly go test ./image)
step 'Tests of the scripts'
tools/dev/scripts_test.sh
