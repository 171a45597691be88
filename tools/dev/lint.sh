#!/usr/bin/env bash
# `make lint`: golangci-lint with the import arrows, the pins of the tools, and the shell scripts.
# With VULNCHECK=1 also known vulnerabilities in what we import; that needs the Go vulnerability database, from the network.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/debian-packages.sh test
bin=$(tools/build.sh lint)
case ${VULNCHECK:-} in 1 | true) "$bin/govulncheck" ./... ;; esac
tools/dev/pins.sh
"$bin/golangci-lint" run --allow-parallel-runners ./...
git ls-files '*.sh' '*/build.conf' .ci/run | xargs shellcheck --external-sources --source-path=SCRIPTDIR
