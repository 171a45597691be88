#!/usr/bin/env bash
# `make test-unit`: every test but the end-to-end ones. They run a real etcd and a real API server on loopback.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$root/tools/debian-packages.sh" build zookeeper
KUBEBUILDER_ASSETS=$("$root/tools/build.sh" kubernetes)
export KUBEBUILDER_ASSETS
cd "$root"
step 'Unit tests'
# Those that wait the longest begin first, so that none is left alone at the end: go test starts packages as they are named.
longest=(./test/robustness ./operator/internal/lease/service ./operator/lease ./operator/internal/namespaces ./operator/internal/reconcile/testkit)
(($#)) || set -- "${longest[@]}" ./...
# Two packages at a time: each may run an API server or an etcd of its own.
go test -p 2 -timeout 15m "$@"
step 'Tests of the scripts'
tools/dev/scripts_test.sh
