#!/usr/bin/env bash
# `make preview [ENV=dev] [BASE=origin/main | LIVE=1]`: what the checkout would deploy, against a revision or a cluster.
# Exit code 0: no change; 2: a change, which is shown; 1: it could not be told. (`make` itself turns 1 and 2 into 2: call
# this script where the difference matters.)
set -euo pipefail
cd "$(dirname "$0")/../.."
arguments=(-stack "${ENV:-dev}" -base "${BASE:-HEAD}")
[[ -z ${LIVE:-} ]] || arguments+=(-live)
mkdir -p bin
go build -o bin/preview ./stacks/cmd/preview
exec bin/preview "${arguments[@]}"
