#!/usr/bin/env bash
# tools/dev/pins.sh   fails when the project and the groups of tools that share most of what they compile pin different versions of
# a module. Nothing else would notice: such a pin only makes the first `make up` compile all that stands above that module again.
set -euo pipefail
cd "$(dirname "$0")/../.."
# kube-network-policies requires containerd/nri, which does not compile with the runtime-spec of the kubelet.
allowed='github.com/opencontainers/runtime-spec'
for module in . tools/kubernetes tools/netpol tools/pulumi tools/languages; do
  go -C "$module" mod edit -print | awk -v module="$module" '
    /^(require|replace) \(/        { inside = 1; next }
    /^\)/                          { inside = 0 }
    inside && $2 == "=>"           { print $1, $4, module }
    inside && $2 ~ /^v/ && $2 != "v0.0.0" { print $1, $2, module } # Kubernetes requires that of its own parts, and replaces it'
done | awk -v allowed="$allowed" '
  $1 == allowed { next }
  !($1 in version) { version[$1] = $2; first[$1] = $3; next }
  version[$1] != $2 { printf "pins: %s is %s in %s/go.mod and %s in %s/go.mod: raise the lower one\n", $1, version[$1], first[$1], $2, $3; wrong = 1 }
  END { exit wrong }' >&2
