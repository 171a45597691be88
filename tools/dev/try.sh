#!/usr/bin/env bash
# Acquires, shows and releases a lease through the first tenant's endpoint, as a client outside the
# cluster would: through a port that kubectl forwards.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
read -r namespace name < <(kubectl get leaseservices -A --no-headers -o custom-columns=:metadata.namespace,:metadata.name | sort | head -n 1)
[[ -n ${namespace:-} ]] || die 'the stack has no tenant'

log=$(mktemp)
kubectl -n "$namespace" port-forward "service/$name" :7400 >"$log" 2>&1 &
forwarder=$!
trap 'kill $forwarder 2>/dev/null; rm -f "$log"' EXIT
for _ in $(seq 100); do
  port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\).*/\1/p' "$log")
  [[ -z $port ]] || break
  kill -0 $forwarder 2>/dev/null || { cat "$log" >&2; die "kubectl port-forward to $namespace/$name ended"; }
  sleep 0.1
done
[[ -n $port ]] || { cat "$log" >&2; die "kubectl port-forward to $namespace/$name did not start within 10 s"; }

export LEASECTL_SERVER=127.0.0.1:$port
note "leasectl lock hello -- sh -c 'echo the fencing token is \$HOLDFAST_FENCING_TOKEN'"
# shellcheck disable=SC2016
"$root/bin/leasectl" lock hello -- sh -c 'echo "    the fencing token is $HOLDFAST_FENCING_TOKEN" >&2'
printf '\nEndpoint in the cluster: %s\n\n' "$(kubectl -n "$namespace" get leaseservice "$name" -o 'jsonpath={.status.endpoint}')"
kubectl get leaseservices -A
