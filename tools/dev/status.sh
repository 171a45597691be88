#!/usr/bin/env bash
# `make status`: the cluster, the stack and the tenants, as they are now.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
if ! external_cluster; then
  [[ -f $local_kubeconfig ]] || { echo "No local cluster named $cluster: start it with make up."; exit 1; }
  export KUBECONFIG=$local_kubeconfig
fi
build_tools

step 'Cluster'
if ! external_cluster; then
  (cd "$root" && mkdir -p bin && go build -o bin/ ./test/cluster/cmd/cluster)
  "$root/bin/cluster" status --name "$cluster" || die 'the cluster is not healthy: make up mends it'
fi
kubectl get nodes -o wide

step 'Stack'
pulumi_env
(cd "$root" && pulumi --non-interactive stack output --stack dev) || note 'no stack yet: make up makes it'

step 'Tenants'
kubectl get leaseservices -A -o wide
