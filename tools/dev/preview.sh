#!/usr/bin/env bash
# `make preview [ENV=dev] [BASE=origin/main | LIVE=1]`: what the checkout would deploy, against a revision or a cluster.
# Exit code 0: no change; 2: a change, which is shown; 1: it could not be told. (`make` itself turns 1 and 2 into 2: call
# this script where the difference matters.)
set -euo pipefail
cd "$(dirname "$0")/../.."
environment=${ENV:-dev}
arguments=(-stack "$environment" -base "${BASE:-HEAD}")
if [[ -n ${LIVE:-} ]]; then
  # shellcheck source=lib.sh
  . tools/dev/lib.sh
  if asked LIVE; then arguments+=(-live); fi
  # The stack dev of make up has its file beside its state, with the images that were built.
  if [[ $environment == dev && -z ${PULUMI_BACKEND_URL:-} && -d $state ]]; then
    find_stack
    [[ ! -f $stack_config ]] || arguments+=(-config "$stack_config")
  fi
fi
mkdir -p bin
go build -o bin/preview ./stacks/cmd/preview
exec bin/preview "${arguments[@]}"
