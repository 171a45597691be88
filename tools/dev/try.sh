#!/usr/bin/env bash
# Acquires, shows and releases a lease through the first tenant's endpoint, as a client outside the
# cluster would: through a port that kubectl forwards.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
read -r namespace name < <(kubectl get leaseservices -A --no-headers -o custom-columns=:metadata.namespace,:metadata.name | sort | head -n 1) || true # read fails on no line at all
[[ -n ${namespace:-} ]] || die 'the stack has no tenant'

kubectl -n "$namespace" wait --for=condition=Ready --timeout=120s "leaseservice/$name" >/dev/null || {
  kubectl get leaseservices -A -o wide >&2
  die "the lease service of $namespace is not ready"
}
secret=$(kubectl -n "$namespace" get leaseservice "$name" -o 'jsonpath={.status.clientSecret}')
folder=$(mktemp -d)
log=$folder/log
kubectl -n "$namespace" port-forward "service/$name" :7400 >"$log" 2>&1 &
forwarder=$!
trap 'kill $forwarder 2>/dev/null; rm -rf "$folder"' EXIT
for _ in $(seq 100); do
  port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\).*/\1/p' "$log")
  [[ -z $port ]] || break
  kill -0 $forwarder 2>/dev/null || { cat "$log" >&2; die "kubectl port-forward to $namespace/$name ended"; }
  sleep 0.1
done
[[ -n $port ]] || { cat "$log" >&2; die "kubectl port-forward to $namespace/$name did not start within 10 s"; }

export LEASECTL_SERVER=127.0.0.1:$port
if [[ -n $secret ]]; then
  # Pods mount this Secret; it is the tenant's, and nobody without its certificate is answered.
  for file in ca.crt tls.crt tls.key; do
    (umask 077 && kubectl -n "$namespace" get secret "$secret" -o "jsonpath={.data.${file/./\\.}}" | base64 -d >"$folder/$file")
  done
  export LEASECTL_CA=$folder/ca.crt LEASECTL_CERT=$folder/tls.crt LEASECTL_KEY=$folder/tls.key
fi
note "leasectl lock hello -- sh -c 'echo the fencing token is \$HOLDFAST_FENCING_TOKEN'"
# shellcheck disable=SC2016
timeout 60 "$root/bin/leasectl" lock hello -- sh -c 'echo "    the fencing token is $HOLDFAST_FENCING_TOKEN" >&2'
printf '\nEndpoint in the cluster: %s\n\n' "$(kubectl -n "$namespace" get leaseservice "$name" -o 'jsonpath={.status.endpoint}')"
kubectl get leaseservices -A
