#!/usr/bin/env bash
# `make lint`: golangci-lint with the import arrows, and the shell scripts.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/debian-packages.sh test
bin=$(tools/build.sh lint)
"$bin/golangci-lint" run --allow-parallel-runners ./...
git ls-files '*.sh' '*/build.conf' .ci/run | xargs shellcheck --external-sources --source-path=SCRIPTDIR
