#!/usr/bin/env bash
# `make up`: from nothing to a tenant's lease service that a client has used.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
started=$SECONDS

alone

step '1/6 Debian packages'
if external_cluster; then
  note "using the cluster of KUBECONFIG=$KUBECONFIG"
  "$root/tools/debian-packages.sh" build
else
  "$root/tools/debian-packages.sh" build cluster
fi

step '2/6 Tools (the first time 15 to 25 minutes, afterwards nothing)'
build_tools

step '3/6 Holdfast itself (the first time up to 3 minutes, afterwards seconds)'
build_binaries
find_images
note "$operator_image"
note "$lease_image"

step '4/6 Cluster'
if external_cluster; then
  kubectl cluster-info >/dev/null || die "the cluster of KUBECONFIG=$KUBECONFIG does not answer"
else
  "$bin/cluster" up --name "$cluster" --bin-dir "$kube_bin" --network-policy "$netpol_bin/kube-network-policies"
  "$bin/cluster" load-image --name "$cluster" "$images"/*.tar
  export KUBECONFIG=$local_kubeconfig
fi

step '5/6 pulumi up (about a minute)'
pulumi_env
create_stack
cd "$root"
configure() { pulumi --non-interactive config set --config-file "$stack_config" --stack dev --path "$1" "$2"; }
configure holdfast:operator.image "$operator_image"
configure holdfast:leaseService.image "$lease_image"
configure holdfast:devEtcd.image "$etcd_image"
# The lock above says that no other update runs: a lock in the state is that of an update that was killed.
pulumi --non-interactive cancel --yes --stack dev >/dev/null 2>&1 || true
if ! update up --refresh; then
  note 'pulumi up failed; the tenants as they are now:'
  kubectl get leaseservices -A -o wide >&2 || true
  die 'make up can be run again; make down removes all'
fi

step '6/6 A client of the first tenant'
"$root/tools/dev/try.sh"

cat <<TXT

Holdfast is up, after $((SECONDS - started)) s. To go on:
  export KUBECONFIG=$KUBECONFIG PATH=${kube_bin:+$kube_bin:}$bin:\$PATH
  kubectl get leaseservices -A -w
  kubectl -n team-a port-forward service/team-a 7400 &
  for f in ca.crt tls.crt tls.key; do kubectl -n team-a get secret team-a-client-tls -o "jsonpath={.data.\${f/./\\\\.}}" | base64 -d >\$f; done
  leasectl --server 127.0.0.1:7400 --ca ca.crt --cert tls.crt --key tls.key lock my-job -- sleep 30
  make status      # cluster, stack and tenants at any time
  make down        # removes all of it
TXT
