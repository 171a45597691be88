#!/usr/bin/env bash
# tools/dev/render.sh [--check] [dev|prod]...   writes the manifests of each environment (default: all) to
# stacks/gitops/<environment>, from the same components that `pulumi up` uses. With --check it fails, and
# shows the difference, when the committed manifests are not current.
set -euo pipefail
cd "$(dirname "$0")/../.."
check=''
if [[ ${1:-} == --check ]]; then check=yes; shift; fi
known=(dev prod)
[[ $# -gt 0 ]] || set -- "${known[@]}"
for environment; do
  [[ " ${known[*]} " == *" $environment "* ]] || { echo "render: no environment '$environment': choose from ${known[*]}" >&2; exit 2; }
done
for environment; do
  go run ./stacks/cmd/render -stack "$environment" -config "Pulumi.$environment.yaml" -out "stacks/gitops/$environment"
done
if [[ -n $check ]]; then
  changed=$(git ls-files -mo --exclude-standard -- stacks/gitops)
  if [[ -n $changed ]]; then
    git --no-pager diff -- stacks/gitops
    printf 'render: not current, run make render and commit:\n%s\n' "$changed" >&2
    exit 1
  fi
  echo 'render: all committed manifests are current'
fi
