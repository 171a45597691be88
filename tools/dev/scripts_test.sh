#!/usr/bin/env bash
# Tests of the scripts' own promises that no end-to-end test reaches.
# shellcheck disable=SC2016 # the groups' functions expand their own arguments
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
passed=0 failed=0

# expect NAME STATUS TEXT COMMAND...   the command exits with STATUS and prints TEXT.
expect() {
  local name=$1 status=$2 text=$3 output got
  shift 3
  output=$("$@" 2>&1 </dev/null)
  got=$?
  if [[ $got == "$status" && $output == *"$text"* ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAIL %s: exit %s (want %s), output: %s\n' "$name" "$got" "$status" "$output"
  fi
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

expect 'an unknown tool group is named' 2 "no group named 'nonsense'" env HOLDFAST_CACHE="$tmp/cache" tools/build.sh nonsense
expect 'no group is a usage error' 2 'usage' tools/build.sh
expect 'an unknown package group is named' 2 "no group named 'nonsense'" tools/debian-packages.sh nonsense
expect 'status without a cluster says how to start one' 1 'make up' env -u KUBECONFIG HOLDFAST_STATE="$tmp/state" tools/dev/status.sh
expect 'render needs a known environment' 2 'dev prod' tools/dev/render.sh nonsense

expect 'a cluster name is checked first' 1 "HOLDFAST_CLUSTER is 'No good'" env -u KUBECONFIG HOLDFAST_CLUSTER='No good' tools/dev/status.sh
expect 'a missing kubeconfig is named' 1 "KUBECONFIG=$tmp/none" env KUBECONFIG="$tmp/none" tools/dev/status.sh
for group in tools/*/build.conf; do
  group=$(basename "$(dirname "$group")")
  expect "docs/tools.md has group $group" 0 '' grep -q "^| \`$group\`" docs/tools.md
done
expect 'docs/tools.md has no blanks left' 1 '' grep -E 'TIME_[A-Z]' docs/tools.md

mkdir -p "$tmp/busy"
expect 'one make up or down at a time' 1 'another make up or make down' env -u KUBECONFIG HOLDFAST_STATE="$tmp/busy" flock "$tmp/busy/lock" tools/dev/down.sh

# A group whose build fails leaves nothing in the cache, so that the next run tries again.
cp -r tools "$tmp/tools"
mkdir "$tmp/tools/broken"
printf 'EXPECT="no time"\nbuild_group() { touch "$1/half"; false; }\n' >"$tmp/tools/broken/build.conf"
expect 'a failed build is reported' 1 'broken: building once' env HOLDFAST_CACHE="$tmp/cache" "$tmp/tools/build.sh" broken
leftover=$(find "$tmp/cache" -name half)
expect 'a failed build leaves nothing behind' 0 '' test -z "$leftover"
printf 'EXPECT="no time"\nbuild_group() { echo built >"$1/tool"; }\n' >"$tmp/tools/broken/build.conf"
expect 'a build is cached' 0 "$tmp/cache/tools/broken-" env HOLDFAST_CACHE="$tmp/cache" "$tmp/tools/build.sh" broken
printf 'EXPECT="no time"\nbuild_group() { echo again >"$1/tool"; }\n' >"$tmp/tools/broken/build.conf"
expect 'a changed group is built anew' 0 "$tmp/cache/tools/broken-" env HOLDFAST_CACHE="$tmp/cache" "$tmp/tools/build.sh" broken
built=$(find "$tmp/cache/tools" -mindepth 1 -maxdepth 1 -name 'broken-*' | wc -l)
expect 'the old build is kept for other checkouts' 0 '' test "$built" = 2

printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
