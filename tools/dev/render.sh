#!/usr/bin/env bash
# tools/dev/render.sh [--check] [ENV]...   writes the manifests of each environment (default: dev prod), by its file
# Pulumi.<ENV>.yaml, to stacks/gitops/<ENV>, from the same components that `pulumi up` uses. With --check it fails, and shows the
# difference, when the committed manifests are not current.
#
# $OUT    of one environment: the folder to write to, such as one in a clone of the repository that Argo CD or Flux read.
#         Manifests in it that are not rendered are removed
# $LIVE   1: the stack dev of `make up`, by the file beside its state, with the images that were built. Without OUT they go
#         beside that file, since the committed ones are those of Pulumi.dev.yaml
set -euo pipefail
cd "$(dirname "$0")/../.."

refuse() { printf 'render: %s\n' "$*" >&2; exit 2; }

# render ENVIRONMENT FILE FOLDER
render() {
  if [[ -n ${OUT:-} && -n $(ls -A "$3" 2>/dev/null) && ! -d $3/crds ]]; then
    refuse "OUT is '$3', which holds something and no rendered manifests, and YAML in it would be removed: name a folder that is missing, empty or rendered"
  fi
  go run ./stacks/cmd/render -stack "$1" -config "$2" -out "$3"
}

render_live() {
  [[ $* == dev && -z ${PULUMI_BACKEND_URL:-} ]] || refuse "LIVE=1 is for the stack dev of make up: ENV is '$*', allowed is dev; PULUMI_BACKEND_URL must not be set"
  find_stack
  [[ -f $stack_config ]] || die 'there is no stack of make up: run make up first'
  render dev "$stack_config" "${OUT:-$pulumi_state/gitops}"
  note "of $stack_config, in ${OUT:-$pulumi_state/gitops}"
}

check=''
if [[ ${1:-} == --check ]]; then check=yes; shift; fi
if [[ -n ${LIVE:-} ]]; then
  # shellcheck source=lib.sh
  . tools/dev/lib.sh
  if asked LIVE; then
    render_live "${@:-dev}"
    exit
  fi
fi
[[ $# -gt 0 ]] || set -- dev prod
[[ -z ${OUT:-} || ( $# == 1 && -z $check ) ]] || refuse "OUT is '$OUT', which is for one environment and not for --check: set ENV"
known=(Pulumi.*.yaml)
known=("${known[@]#Pulumi.}")
known=("${known[@]%.yaml}")
for environment; do
  [[ " ${known[*]} " == *" $environment "* ]] || refuse "no environment '$environment', for there is no Pulumi.$environment.yaml: choose from ${known[*]}"
done
for environment; do
  render "$environment" "Pulumi.$environment.yaml" "${OUT:-stacks/gitops/$environment}"
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
