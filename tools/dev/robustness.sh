#!/usr/bin/env bash
# `make robustness`: run real lease services under faults for a long time and check every history; see docs/robustness.md.
#
#   DURATION=10m   start new runs for this long
#   RUNS=0         or make this many runs, whatever time they take
#   SEED=1         what the faults and the clients are drawn from
#   CLUSTERS=2     clusters at a time
#
# Histories that cannot be explained are kept in $FAILURES (default: a folder of its own under the temporary one).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
KUBEBUILDER_ASSETS=$("$root/tools/build.sh" kubernetes)
export KUBEBUILDER_ASSETS
failures=${FAILURES:-$(mktemp -d)}
runs=${RUNS:-0} duration=${DURATION:-10m}
if ((runs > 0)); then
  duration=0
fi
cd "$root"
step 'The checker, and the engine with a protection taken out'
go test -count=1 ./test/robustness/history ./operator/internal/lease/protections
step "Robustness: seed ${SEED:-1}, histories that cannot be explained go to $failures"
go test ./test/robustness -count=1 -v -timeout 60m -args \
  -robustness.long -robustness.seed="${SEED:-1}" -robustness.runs="$runs" -robustness.duration="$duration" \
  -robustness.clusters="${CLUSTERS:-2}" -robustness.failures="$failures"
