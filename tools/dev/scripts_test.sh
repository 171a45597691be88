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
expect 'render needs a known environment' 2 'no Pulumi.nonsense.yaml: choose from dev prod' tools/dev/render.sh nonsense

expect 'a cluster name is checked first' 1 "HOLDFAST_CLUSTER is 'No good'" env -u KUBECONFIG HOLDFAST_CLUSTER='No good' tools/dev/status.sh
expect 'a missing kubeconfig is named' 1 "KUBECONFIG=$tmp/none" env KUBECONFIG="$tmp/none" tools/dev/status.sh
for group in tools/*/build.conf; do
  group=$(basename "$(dirname "$group")")
  expect "docs/tools.md has group $group" 0 '' grep -q "^| \`$group\`" docs/tools.md
done
for controller in operator/internal/controller/*/; do
  expect ".golangci.yml has a rule for $controller" 0 '' grep -qF "\"**/$controller*.go\"" .golangci.yml
done
expect 'docs/tools.md has no blanks left' 1 '' grep -E 'TIME_[A-Z]' docs/tools.md

mkdir -p "$tmp/busy"
expect 'one make up or down at a time' 1 'another make up, down' env -u KUBECONFIG HOLDFAST_STATE="$tmp/busy" flock "$tmp/busy/lock" tools/dev/down.sh

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

# Pins of what is shared.
cp go.mod "$tmp/"
expect 'pins agree' 0 '' "$tmp/tools/dev/pins.sh"
sed -i 's|\(golang.org/x/sys\) v[^ ]*|\1 v0.1.0|' "$tmp/tools/pulumi/go.mod"
expect 'a pin that differs is named' 1 'pins: golang.org/x/sys is' "$tmp/tools/dev/pins.sh"
expect 'and where it stands' 1 'v0.1.0 in tools/pulumi/go.mod: raise the lower one' "$tmp/tools/dev/pins.sh"

# jobs LINE...   runs them two at a time.
jobs() { printf '%s\n' "$@" | bash -c '. tools/dev/jobs.sh; run_jobs 2 "$1"' jobs "$tmp/jobs"; }
expect 'jobs run' 0 '=== two passed' jobs 'one true' 'two echo done'
expect 'a failed job fails the run and is named' 1 'failed: one' jobs 'one false' 'two true'
expect 'what a failed job printed is shown' 1 'none.tar' jobs 'one ls none.tar' 'two true'
expect 'and kept' 0 'none.tar' cat "$tmp/jobs/one.log"

# packages GROUP   installs where there are only those programs of the host that the script itself needs, and stand-ins.
mkdir "$tmp/host"
for program in bash cat rm chmod; do ln -s "$(command -v "$program")" "$tmp/host/"; done
on_host() { printf '#!/usr/bin/env bash\n%s\n' "$2" >"$tmp/host/$1" && chmod +x "$tmp/host/$1"; }
on_host dpkg-query '[[ $4 == containerd || $4 == runc ]] || echo "install ok installed"'
on_host id 'echo 1000'
on_host apt-get '[[ $* != *install* ]] || { echo "$*; the following would be REMOVED: containerd.io"; exit 100; }'
sed -i "s|/usr/sbin/policy-rc.d|$tmp/policy-rc.d|" "$tmp/tools/debian-packages.sh"
packages() { PATH=$tmp/host "$tmp/tools/debian-packages.sh" "$1"; }
expect 'packages that are missing are named' 1 'root is needed to install: containerd runc' packages cluster
on_host id 'echo 0'
expect 'nothing is removed for a package' 1 'install -y -q --no-remove --no-install-recommends containerd runc; the following' packages cluster
expect 'and what apt-get says is shown' 1 'REMOVED: containerd.io' packages cluster
expect 'and the policy of services is gone' 1 '' test -e "$tmp/policy-rc.d"
for program in containerd ctr runc; do on_host "$program" 'true'; done
expect 'programs that somebody else brought are used' 0 '' packages cluster

# From here on the programs that the scripts start are stand-ins, which note what they are asked for.
mkdir "$tmp/fake"
stand_in() { { echo '#!/usr/bin/env bash' && cat; } >"$tmp/fake/$1" && chmod +x "$tmp/fake/$1"; }
stand_in kubectl <<'END'
if [[ $1 == version ]]; then echo '{"minor": "36"}'; else echo https://elsewhere; fi
END
stand_in pulumi <<'END'
case "$*" in
*'plugin ls'*) echo '[{"name":"kubernetes","kind":"resource","version":"4.25.0"}]' ;;
*'stack export'*) cat "$FAKE/exported" ;;
*) echo "pulumi $*" >>"$FAKE/asked" ;;
esac
END
stand_in pulumi-language-go </dev/null
stand_in handover <<'END'
flock --nonblock "$HOLDFAST_STATE/lock" true 2>/dev/null || alone=' alone'
echo "handover $* backend=${PULUMI_BACKEND_URL%%:*}.${alone:-}" | tee -a "$FAKE/asked"
exit "${FAIL:-0}"
END
stand_in go <<'END'
if [[ $1 == run ]]; then echo "go $*"; else cp "$FAKE/handover" "$3"; fi # go build -o FOLDER PACKAGE
END
with_fakes() { env -u KUBECONFIG -u PULUMI_BACKEND_URL -u HOLDFAST_ALONE HOLDFAST_STATE="$tmp/state" PATH="$tmp/fake:$PATH" FAKE="$tmp/fake" "$@"; }

move=("$tmp/tools/dev/handover.sh" -to gitops)
for value in 0 false ''; do
  expect "UNLOCK=$value takes no lock" 0 "-project $tmp -to gitops backend" with_fakes ENV=prod UNLOCK="$value" DRY_RUN="$value" "${move[@]}"
done
for value in 1 true; do
  expect "UNLOCK=$value takes the lock" 0 '-to gitops -unlock backend' with_fakes ENV=prod UNLOCK="$value" "${move[@]}"
done
expect 'DRY_RUN=1 is a dry run' 0 '-to gitops -dry-run backend' with_fakes ENV=prod DRY_RUN=1 "${move[@]}"
expect 'another UNLOCK is refused' 1 "UNLOCK is 'no': allowed are 1, true, 0, false" with_fakes ENV=prod UNLOCK=no "${move[@]}"

home=$tmp/external/pulumi/$(echo https://elsewhere | sha256sum | cut -c1-8)
touch "$tmp/kubeconfig"
down() { with_fakes KUBECONFIG="$tmp/kubeconfig" HOLDFAST_STATE="$tmp/external" TENANT=a "$@" "$tmp/tools/dev/down.sh"; }
# stack_of RESOURCE   is a stack of make up on a cluster elsewhere, with that in its state.
stack_of() { rm -f "$tmp/fake/asked" && mkdir -p "$home" && touch "$home/Pulumi.dev.yaml" && echo "$1" >"$tmp/fake/exported"; }
stack_of 'urn:pulumi:dev::holdfast::holdfast:index:GitOpsHandover::gitops'
expect 'a stack that cannot be taken back is kept' 3 'from GitOps' down FAIL=3
expect 'its state is kept' 0 '' test -f "$home/Pulumi.dev.yaml"
rm "$tmp/fake/asked"
expect 'down takes a stack back from GitOps' 0 'removed' down UNLOCK=1
expect 'and destroys it so' 0 "handover -stack dev -project $tmp -to pulumi -destroy -unlock -config $home/Pulumi.dev.yaml backend=file." cat "$tmp/fake/asked"
expect 'and asks for nothing else' 1 '' grep -v '^handover' "$tmp/fake/asked"
expect 'and then removes its state' 1 '' test -e "$home"
stack_of 'urn:pulumi:dev::holdfast::holdfast:index:Platform::holdfast'
expect 'down destroys a stack that is all its own' 0 'removed' down
expect 'by pulumi alone' 0 'pulumi --non-interactive destroy --yes' cat "$tmp/fake/asked"
stack_of '' && rm "$tmp/fake/exported"
expect 'a state that cannot be read is kept' 1 'nothing was removed' down
expect 'and stays where it is' 0 '' test -f "$home/Pulumi.dev.yaml"

# On the stack of make up one make works at a time; other stacks have locks of their own, in their states.
stack_of ''
lock=$tmp/external/lock
up_stack() { with_fakes KUBECONFIG="$tmp/kubeconfig" HOLDFAST_STATE="$tmp/external" "$@"; }
expect 'a handover holds the lock' 0 'backend=file. alone' up_stack "${move[@]}"
expect 'by a descriptor that it is told' 0 '-to gitops -lock ' up_stack "${move[@]}"
expect 'and nobody holds it afterwards' 0 '' flock --nonblock "$lock" true
for target in '-to gitops' '-to pulumi -destroy'; do
  read -ra flags <<<"$target"
  expect "handover $target is refused beside make up" 1 "another make up, down, handover or destroy is running on $tmp/external" \
    up_stack flock "$lock" "$tmp/tools/dev/handover.sh" "${flags[@]}"
done
expect 'but not when make down runs it' 0 '-to gitops -config' up_stack HOLDFAST_ALONE=yes flock "$lock" "${move[@]}"
expect 'and not for another stack' 0 '-to gitops backend' up_stack ENV=prod flock "$lock" "${move[@]}"

render() { up_stack OUT= LIVE= "$@" "$tmp/tools/dev/render.sh" ${of:+"$of"}; }
touch "$tmp/Pulumi.yaml" "$tmp/Pulumi.dev.yaml" "$tmp/Pulumi.prod.yaml" "$tmp/Pulumi.mine.yaml"
mkdir -p "$tmp/rendered/crds" "$tmp/full/team-a"
run='go run ./stacks/cmd/render -stack'
expect 'make render writes dev and prod' 0 "$run dev -config Pulumi.dev.yaml -out stacks/gitops/dev"$'\n'"$run prod -config Pulumi.prod.yaml -out stacks/gitops/prod" render KUBECONFIG="$tmp/none"
of=mine expect 'an environment is one that has a file' 0 "$run mine -config Pulumi.mine.yaml -out stacks/gitops/mine" render
of=mine expect 'OUT is another folder' 0 "-config Pulumi.mine.yaml -out $tmp/new" render OUT="$tmp/new"
of=mine expect 'and may be one that was rendered' 0 "-out $tmp/rendered" render OUT="$tmp/rendered"
of=mine expect 'and nothing else' 2 "OUT is '$tmp/full', which holds something" render OUT="$tmp/full"
expect 'OUT is for one environment' 2 "OUT is '$tmp/new', which is for one environment" render OUT="$tmp/new"
expect 'LIVE=1 is the stack of make up' 0 "$run dev -config $home/Pulumi.dev.yaml -out $home/gitops" render LIVE=1
of=dev expect 'and OUT is a folder for it' 0 "$run dev -config $home/Pulumi.dev.yaml -out $tmp/new" render LIVE=1 OUT="$tmp/new"
of=dev expect 'LIVE=0 is not' 0 '-config Pulumi.dev.yaml -out stacks' render LIVE=0
of=prod expect 'nor is prod' 2 "ENV is 'prod', allowed is dev" render LIVE=1
expect 'there has to be one' 1 'run make up first' render LIVE=1 HOLDFAST_STATE="$tmp/nothing"

printf '%d passed, %d failed\n' "$passed" "$failed"
[[ $failed == 0 ]]
