#!/usr/bin/env bash
# `make test-e2e`: the tests behind the build tag e2e, on local clusters that they start and remove, with the real
# Pulumi CLI and provider. Arguments go to go test: tools/dev/test-e2e.sh -run TestE2EMainJob ./test/e2e/
# Without arguments all of them run, two at a time, since each has clusters of its own and mostly waits. More of them, or the
# unit tests beside them, take two cores so wholly that bounds of time do not hold.
#
# $TEST_STREAMS   tests at a time (default: 2)
# $TEST_LOGS      folder of each test's whole output (default: tests in the state folder)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/jobs.sh"

# The longest first, so that none is left alone at the end; but the handovers, each of which only looks on for three minutes, not both at
# once: what runs beside one has the machine for that time. A test that does not stand here begins before them.
longest=(TestE2EHandover TestE2EMainJob TestE2EGitOps TestE2EHandoverFlux TestE2EReleaseGuard TestE2ETenantsByThemselves TestE2ECluster TestE2ELeaseLoad)

# build_environment builds what the tests need, and names it in the environment.
build_environment() {
  "$root/tools/debian-packages.sh" build cluster gitops languages
  unset KUBECONFIG # the tests never touch a cluster that they did not start
  build_tools
  { read -r argocd_bin && read -r flux_bin && read -r languages_bin; } < <("$root/tools/build.sh" argocd flux languages)
  build_binaries
  (cd "$root" && go build -o "$bin/" ./components/cmd/pulumi-resource-holdfast ./stacks/cmd/render)
  find_images
  export HOLDFAST_KUBE_BIN=$kube_bin HOLDFAST_NETPOL_BIN=$netpol_bin HOLDFAST_BIN=$bin HOLDFAST_PULUMI_BIN=$pulumi_bin HOLDFAST_IMAGES=$images
  export HOLDFAST_ARGOCD_BIN=$argocd_bin HOLDFAST_FLUX_BIN=$flux_bin HOLDFAST_LANGUAGES_BIN=$languages_bin
  export HOLDFAST_OPERATOR_IMAGE=$operator_image HOLDFAST_LEASE_IMAGE=$lease_image HOLDFAST_ETCD_IMAGE=$etcd_image
}

# build_tests compiles the tests of each package that has some, as $programs/<package>.test.
build_tests() {
  mapfile -t packages < <(cd "$root" && grep -rl --include='*_test.go' '^//go:build e2e$' test | xargs dirname | sort -u)
  programs=$bin/e2e
  rm -rf "$programs"
  mkdir -p "$programs"
  (cd "$root" && go test -c -tags e2e -o "$programs/" "${packages[@]/#/./}")
}

# list_tests prints a job for each test, in the order to start them in.
list_tests() {
  local package name
  {
    for package in "${packages[@]}"; do
      for name in $("$programs/$(basename "$package").test" -test.list E2E); do
        printf '%s run_test %s %s\n' "$name" "$package" "$name"
      done
    done
    printf -- '- %s\n' "${longest[@]}"
  } | awk '
    $1 != "-"   { job[$1] = $0; names[++n] = $1 }
    $2 in job   { later = later job[$2] "\n"; delete job[$2] }
    END         { for (i = 1; i <= n; i++) if (names[i] in job) print job[names[i]]; printf "%s", later }'
}

# run_test PACKAGE TEST   runs one test where go test would.
run_test() {
  cd "$root/$1" && exec "$programs/$(basename "$1").test" -test.v -test.run "^$2\$" -test.timeout 40m
}

# own_temporary gives the tests a temporary folder of this run, and removes those of runs that were killed. Its path is short,
# since sockets are in it.
own_temporary() {
  local folder base=${TMPDIR:-/tmp}/hf-e2e
  for folder in "$base".*/; do
    [[ ! -d $folder ]] || kill -0 "$(basename "${folder#"$base."}")" 2>/dev/null || remove_temporary "${folder%/}"
  done
  export TMPDIR=$base.$$
  mkdir -p "$TMPDIR"
  trap 'remove_temporary "$TMPDIR"' EXIT
  trap 'exit 143' TERM INT
}

# remove_temporary FOLDER   takes down the clusters of tests that were interrupted, which go on without them, and removes the folder.
remove_temporary() {
  local file cluster
  while read -r file; do
    cluster=$(dirname "$file")
    note "taking down the cluster $(basename "$cluster") that an interrupted test left"
    "$bin/cluster" down --name "$(basename "$cluster")" --state-dir "${cluster%/clusters/*}" || true
  done < <(find "$1" -path '*/clusters/*/state.json' 2>/dev/null)
  rm -rf "$1"
}

build_environment
own_temporary
cd "$root"
if [[ $# -gt 0 ]]; then
  step 'End-to-end tests'
  go test -tags e2e -count 1 -timeout 40m -v "$@"
  exit
fi
build_tests
export root programs
export -f run_test
step "End-to-end tests, ${TEST_STREAMS:-2} at a time"
list_tests | run_jobs "${TEST_STREAMS:-2}" "${TEST_LOGS:-$state/tests}"
