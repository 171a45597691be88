#!/usr/bin/env bash
# `make bench`: measure the lease service against etcd's own locks and raw puts, and the operator's znodes against bare clients;
# write the results to the state folder and the tables to docs/performance.md. With arguments it only looks at the lease service,
# or after the word znodes at these: they go to the program, and the page stays as it is.
#
#   tools/dev/bench.sh -quick            less than a minute
#   tools/dev/bench.sh -only L1,L5       some figures
#   tools/dev/bench.sh -profile DIR      with CPU profiles
#   tools/dev/bench.sh znodes -only drift -objects 500    how soon drift of a znode is put right: a minute
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$root"
mkdir -p "$root/bin" "$state"

znodes() {
	tools/debian-packages.sh zookeeper
	KUBEBUILDER_ASSETS=$(tools/build.sh kubernetes)
	export KUBEBUILDER_ASSETS
	step 'Measuring znodes'
	go run ./operator/internal/bench/zookeeper -json "$state/bench-zookeeper.json" "$@"
	note "results: $state/bench-zookeeper.json"
}

if [[ ${1:-} == znodes ]]; then
	znodes "${@:2}"
	exit 0
fi
step 'Building'
go build -o "$root/bin/lease-service" ./operator/cmd/lease-service
go build -o "$root/bin/bench-lease" ./test/bench/lease
step 'Measuring the lease service'
results=(-json "$state/bench.json")
(($#)) || results+=(-docs docs/performance.md)
# The data of etcd belongs on a disk: a temporary folder in memory would make every sync free.
"$root/bin/bench-lease" -lease-service "$root/bin/lease-service" -dir "$state" "${results[@]}" "$@"
note "results: $state/bench.json"
# Arguments are for the lease service alone.
(($#)) && exit 0
znodes -docs docs/performance.md
