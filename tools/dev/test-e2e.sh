#!/usr/bin/env bash
# `make test-e2e`: the tests behind the build tag e2e, on local clusters that they start and remove, with the real
# Pulumi CLI and provider. Arguments go to go test: tools/dev/test-e2e.sh -run TestMainJob ./test/e2e/...
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$root/tools/debian-packages.sh" build cluster gitops languages
unset KUBECONFIG # the tests never touch a cluster that they did not start
build_tools
{ read -r argocd_bin && read -r flux_bin && read -r languages_bin; } < <("$root/tools/build.sh" argocd flux languages)
build_binaries
(cd "$root" && go build -o "$bin/" ./components/cmd/pulumi-resource-holdfast)
find_images
export HOLDFAST_KUBE_BIN=$kube_bin HOLDFAST_NETPOL_BIN=$netpol_bin HOLDFAST_BIN=$bin HOLDFAST_PULUMI_BIN=$pulumi_bin HOLDFAST_IMAGES=$images
export HOLDFAST_ARGOCD_BIN=$argocd_bin HOLDFAST_FLUX_BIN=$flux_bin HOLDFAST_LANGUAGES_BIN=$languages_bin
export HOLDFAST_OPERATOR_IMAGE=$operator_image HOLDFAST_LEASE_IMAGE=$lease_image HOLDFAST_ETCD_IMAGE=$etcd_image
cd "$root"
step 'End-to-end tests'
if [[ $# -gt 0 ]]; then
  go test -tags e2e -count 1 -timeout 40m -v "$@"
else
  # One package at a time: each starts clusters, and they share two cores.
  go test -tags e2e -count 1 -p 1 -timeout 40m -v -run 'E2E' ./test/...
fi
