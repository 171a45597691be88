#!/usr/bin/env bash
# tools/build.sh GROUP...   builds pinned tool groups, each once, into a content-addressed cache, and
# prints the folder of each group's binaries, one a line. Progress goes to standard error.
#
# A group is a folder beside this script with a Go module (its committed go.mod and go.sum are the pins)
# and a file build.conf. The cache key covers every file of the group, the Go version and this script, so
# a cached folder never has to be checked for freshness. $HOLDFAST_CACHE names the cache
# (default: holdfast in the user's cache folder); several checkouts and CI share it.
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${HOLDFAST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/holdfast}
say() { printf 'tools: %s\n' "$*" >&2; }

# key GROUP: what the built binaries depend on, hashed.
key() {
  (
    cd "$tools"
    {
      go version
      sha256sum build.sh
      find "$1" -type f ! -name '*-embed.json' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum | cut -c1-16
  )
}

# progress GROUP: turns the package names that `go build -v` prints into one line every few seconds.
progress() {
  local group=$1 count=0 last=$SECONDS start=$SECONDS
  while IFS= read -r line; do
    if [[ $line =~ ^[a-zA-Z0-9._/~-]+$ ]]; then
      count=$((count + 1))
      if ((SECONDS - last >= 15)); then
        say "$group: $count packages compiled, $((SECONDS - start)) s"
        last=$SECONDS
      fi
    elif [[ $line != 'go: downloading'* ]]; then
      printf '%s\n' "$line" >&2
    fi
  done
}

# build GROUP OUT: reads the group's build.conf, which defines EXPECT (the usual cold time in words) and a
# function build_group that puts the binaries into the folder it is given.
build() (
  set -euo pipefail
  group=$1 out=$2 start=$SECONDS
  tmp=$(mktemp -d "$cache/.$group.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  cd "$tools/$group"
  # shellcheck source=/dev/null
  . ./build.conf
  say "$group: building once into $out (from an empty Go cache: $EXPECT)"
  # One set of flags for everything, and none that changes what the compiler writes, such as -trimpath: groups share what
  # they have in common, and the project's own programs and tests share it too.
  export CGO_ENABLED=0 GOFLAGS='-mod=readonly -buildvcs=false'
  # What a build prints, go build -v's package names included, becomes progress on standard error.
  { build_group "$tmp" 2>&1 >&3 | progress "$group"; } 3>&2
  mkdir -p "$(dirname "$out")"
  chmod 755 "$tmp"
  mv "$tmp" "$out"
  say "$group: done in $((SECONDS - start)) s"
  printf '%s\t%s\t%s\n' "$(date -u +%FT%TZ)" "$group" "$((SECONDS - start))" >>"$cache/times.tsv"
)

[[ $# -gt 0 ]] || { echo "usage: tools/build.sh GROUP..." >&2; exit 2; }
mkdir -p "$cache/tools"
for group; do
  [[ -f $tools/$group/build.conf ]] || { say "no group named '$group': choose from $(cd "$tools" && echo */build.conf | sed 's|/build.conf||g')"; exit 2; }
  out=$cache/tools/$group-$(key "$group")
  if [[ ! -d $out ]]; then
    # One build at a time on the whole machine: two at once take several times longer than one after another.
    exec 9>"$cache/build.lock"
    flock -n 9 || { say "$group: waiting for another build to finish"; flock 9; }
    rm -rf "$cache"/."$group".?????? # of a build that was killed
    [[ -d $out ]] || build "$group" "$out"
    exec 9>&-
  fi
  printf '%s\n' "$out"
done
