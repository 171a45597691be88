#!/usr/bin/env bash
# tools/generate.sh [--check]   writes all generated files: deep copies and CRDs from the API types, Go code
# from the protobuf sources, the schema of the component package from the arguments of the components. With --check it fails, and shows the difference, if a committed one is out of date.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(tools/build.sh generate)
export PATH=$bin:$PATH

generate() {
  controller-gen object paths="{./operator/api/...,./operator/internal/argocd}"
  controller-gen crd:generateEmbeddedObjectMeta=true paths=./operator/api/... output:crd:dir=crds
  (cd operator/lease && buf lint && buf generate)
  (cd operator/internal/lease && buf lint && buf generate)
  go run ./components/cmd/provider-schema
}

generated() { git ls-files -mo --exclude-standard -- crds operator/api operator/internal/argocd operator/lease operator/internal/lease/store/storepb components/provider/schema.json; }

before=$(generated)
generate
if [[ ${1:-} == --check ]]; then
  [[ -z $before ]] || { echo "generate: commit these first, they hide what changed:"; echo "$before"; exit 2; } >&2
  after=$(generated)
  if [[ -n $after ]]; then
    git --no-pager diff -- crds operator/api operator/internal/argocd operator/lease operator/internal/lease/store/storepb components/provider/schema.json
    printf 'generate: out of date, run make generate and commit:\n%s\n' "$after" >&2
    exit 1
  fi
  echo "generate: all generated files are current"
fi
