#!/usr/bin/env bash
# `make bench`: measure the lease service against etcd's own locks and raw puts, write the results to bench.json in the state
# folder and the table to docs/performance.md. With arguments it only looks: they go to the program, and the page stays as it is.
#
#   tools/dev/bench.sh -quick            less than a minute
#   tools/dev/bench.sh -only L1,L5       some figures
#   tools/dev/bench.sh -profile DIR      with CPU profiles
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"
mkdir -p "$root/bin" "$state"
step 'Building'
go build -o "$root/bin/lease-service" ./operator/cmd/lease-service
go build -o "$root/bin/bench-lease" ./test/bench/lease
step 'Measuring the lease service'
results=(-json "$state/bench.json")
(($#)) || results+=(-docs docs/performance.md)
# The data of etcd belongs on a disk: a temporary folder in memory would make every sync free.
"$root/bin/bench-lease" -lease-service "$root/bin/lease-service" -dir "$state" "${results[@]}" "$@"
note "results: $state/bench.json"
