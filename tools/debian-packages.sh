#!/usr/bin/env bash
# tools/debian-packages.sh [GROUP...]   installs the Debian packages that the named groups need (default:
# all), and only those that are missing. Each line says what a package is for. Nothing is removed for them.
set -euo pipefail

# on_path PROGRAM...   reports whether all of them are there, whoever brought them.
on_path() { for program; do command -v "$program" >/dev/null || return 1; done; }

packages() {
  case $1 in
  build) cat <<'L' ;;
make            runs the targets
git             the version that is stamped into binaries
ca-certificates module downloads
L
  cluster)
    # Docker's containerd.io has the programs of both, and cannot be installed beside either.
    on_path containerd ctr || echo "containerd      runs the pods of the local cluster's nodes"
    on_path runc || echo 'runc            starts their containers'
    cat <<'L' ;;
containernetworking-plugins  the bridge, host-local and portmap CNI plugins
iptables        kube-proxy's rules, in the nodes' network namespaces
conntrack       kube-proxy forgets connections of UDP Services that moved
iproute2        the network namespaces and links between the nodes
util-linux      nsenter, unshare and mount for the nodes
procps          sysctl, for forwarding inside the nodes
L
  race) cat <<'L' ;;
gcc             the race detector needs cgo
libc6-dev       the race detector needs cgo
L
  zookeeper) cat <<'L' ;;
zookeeper       the servers that tests of ZooKeeperConfigs talk to, started by the tests on free ports
default-jre-headless  runs them
L
  gitops) cat <<'L' ;;
redis-server    Argo CD's cache, started by the tests on a free port
prometheus      answers the checks of release guards, started by the tests on a free port
L
  languages)
    # Debian's npm does not go with a Node.js that came from elsewhere.
    on_path npm || echo 'npm             brings TypeScript, which compiles the generated SDK'
    cat <<'L' ;;
python3         compiles the generated SDK
mypy            checks its types
L
  test) cat <<'L' ;;
shellcheck      lints the shell scripts
L
  *) echo "tools/debian-packages.sh: no group named '$1': choose from build cluster race zookeeper gitops languages test" >&2; exit 2 ;;
  esac
}

[[ $# -gt 0 ]] || set -- build cluster race zookeeper gitops languages test
missing=()
for group; do
  list=$(packages "$group")
  while read -r name why; do
    [[ $(dpkg-query -W -f '${Status}' "$name" 2>/dev/null) == 'install ok installed' ]] && continue
    printf 'packages: installing %s: %s\n' "$name" "$why" >&2
    missing+=("$name")
  done <<<"$list"
done
[[ ${#missing[@]} -gt 0 ]] || exit 0
command -v apt-get >/dev/null || { echo "packages: no apt-get here; install by hand: ${missing[*]}" >&2; exit 1; }
[[ $(id -u) == 0 ]] || { echo "packages: root is needed to install: ${missing[*]}" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# Services that a package brings (containerd's, for example) are not wanted: the cluster starts its own.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
output=$(apt-get install -y -q --no-remove --no-install-recommends "${missing[@]}" 2>&1) || {
  printf '%s\npackages: apt-get could not install %s (it may remove nothing for them): see above\n' "$output" "${missing[*]}" >&2
  exit 1
}
