# shellcheck shell=bash disable=SC2034 # what is set here is used by the scripts that source it
# What `make up`, `make down`, `make status` and the end-to-end tests share. Sourced, never run.
#
# $HOLDFAST_STATE    what runs keeps its state here   (default: holdfast in the user's state folder)
# $HOLDFAST_CLUSTER  the local cluster's name         (default: dev)
# $KUBECONFIG        set: that cluster is used, and no local one is started
# $REGISTRY, $TAG    with KUBECONFIG: where that cluster pulls the images from (`make push` puts them there)
# $ETCD_IMAGE        with KUBECONFIG: the image of the development etcd

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
state=$(realpath -m "${HOLDFAST_STATE:-${XDG_STATE_HOME:-${HOME:?set HOME or HOLDFAST_STATE}/.local/state}/holdfast}")
cluster=${HOLDFAST_CLUSTER:-dev}
local_kubeconfig=$state/clusters/$cluster/kubeconfig
export HOLDFAST_STATE=$state CGO_ENABLED=0

step() { printf '\n\033[1m==> %s\033[0m\n' "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# asked NAME   reports whether the variable asks for something: 1 or true do; 0, false and nothing do not.
asked() {
  case ${!1:-} in
    1 | true) return 0 ;;
    '' | 0 | false) return 1 ;;
    *) die "$1 is '${!1}': allowed are 1, true, 0, false and nothing" ;;
  esac
}

[[ $cluster =~ ^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$ ]] ||
  die "HOLDFAST_CLUSTER is '$cluster': allowed are up to 32 lower case letters, digits and '-', beginning with a letter and not ending in '-'"

# A KUBECONFIG that is the local cluster's own (the closing lines of `make up` suggest to export it) is no other cluster.
external_cluster() { [[ -n ${KUBECONFIG:-} && $KUBECONFIG != "$local_kubeconfig" ]]; }

# KUBECONFIG may list several files; one of them has to be there.
if external_cluster; then
  readable=''
  IFS=: read -ra files <<<"$KUBECONFIG"
  for file in "${files[@]}"; do [[ ! -r $file ]] || readable=yes; done
  [[ -n $readable ]] || die "KUBECONFIG=$KUBECONFIG names no file that can be read; unset it to use the local cluster"
fi

# alone runs the rest of the script while no other one changes what is in $state. The lock is flock's own: what a script
# leaves running, such as the cluster, must not inherit it.
alone() {
  local status=0
  [[ -z ${HOLDFAST_ALONE:-} ]] || return 0
  mkdir -p "$state"
  HOLDFAST_ALONE=yes flock --close --nonblock --conflict-exit-code 75 "$state/lock" "$0" || status=$?
  [[ $status != 75 ]] || busy
  exit "$status"
}

# stay_alone does what alone does for a script that ends by putting a program in its own place, which is to get the signals
# that it would get: the lock is this shell's descriptor $lock, and so that program's. The program must not let what it starts
# inherit it, for that may outlive a kill. $lock is empty when whoever started the script holds the lock.
stay_alone() {
  lock=''
  [[ -z ${HOLDFAST_ALONE:-} ]] || return 0
  mkdir -p "$state"
  exec {lock}>>"$state/lock"
  flock --nonblock "$lock" || busy
}

busy() { die "another make up, down, handover or destroy is running on $state; run this again when it has ended"; }

# build_tools sets kube_bin, netpol_bin and pulumi_bin, and puts kubectl and pulumi first on PATH. What is installed
# already is used when its version fits.
build_tools() {
  kube_bin='' netpol_bin='' pulumi_bin=''
  if ! external_cluster || ! fits_kubectl; then
    { read -r kube_bin && read -r netpol_bin; } < <("$root/tools/build.sh" kubernetes netpol)
    PATH=$kube_bin:$PATH
  fi
  if ! fits_pulumi; then
    pulumi_bin=$("$root/tools/build.sh" pulumi)
    PATH=$pulumi_bin:$PATH
  fi
  export PATH
}

# kubectl supports API servers one minor version away from its own.
fits_kubectl() {
  local minor
  minor=$(kubectl version --client -o json 2>/dev/null | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p') || return 1
  [[ -n $minor ]] && ((minor >= 36))
}

# An installed pulumi fits when it has the Kubernetes provider that the components were written for.
fits_pulumi() {
  command -v pulumi >/dev/null && command -v pulumi-language-go >/dev/null &&
    PULUMI_SKIP_UPDATE_CHECK=true pulumi plugin ls --json 2>/dev/null | tr -d ' \n' | grep -q '"name":"kubernetes","kind":"resource","version":"4\.25\.'
}

# build_binaries compiles our own programs into $bin.
build_binaries() {
  bin=$root/bin
  mkdir -p "$bin"
  (cd "$root" && go build -ldflags "-s -w -X main.version=$(version)" -o "$bin/" ./operator/cmd/operator ./operator/cmd/lease-service ./operator/cmd/leasectl)
  (cd "$root" && go build -o "$bin/" ./test/cluster/cmd/cluster)
}

# version is the nearest tag, or the commit. It must not differ between builds of the same sources.
version() { git -C "$root" describe --tags --always 2>/dev/null || echo 0.0.0-dev; }

# find_images sets operator_image, lease_image and etcd_image. For the local cluster it makes them, as archives in
# $images. A tag is the hash of what is in the image: images of one name never differ, and a rebuilt program rolls out.
find_images() {
  if external_cluster; then
    [[ -n ${REGISTRY:-} && -n ${TAG:-} ]] ||
      die 'the cluster of KUBECONFIG pulls its images: run "make push REGISTRY=host/path TAG=v1", then "make up" with the same two'
    operator_image=$REGISTRY/operator:$TAG lease_image=$REGISTRY/lease-service:$TAG
    etcd_image=${ETCD_IMAGE:-gcr.io/etcd-development/etcd:v3.7.3}
    return
  fi
  images=$state/images
  mkdir -p "$images"
  operator_image=$(image operator /operator "$bin/operator")
  lease_image=$(image lease-service /lease-service "$bin/lease-service" "$bin/leasectl")
  # The path is that of etcd's own image.
  etcd_image=$(image etcd /usr/local/bin/etcd "$kube_bin/etcd:/usr/local/bin/etcd")
}

# image NAME ENTRYPOINT FILE[:PATH]...   makes an archive if there is none of that content, and prints the reference.
image() {
  local name=$1 entrypoint=$2 tag archive
  shift 2
  tag=$(cat "${@%%:*}" | sha256sum | cut -c1-12)
  archive=$images/$name-$tag.tar
  if [[ ! -f $archive ]]; then
    rm -f "$images/$name"-*.tar
    "$kube_bin/image" -o "$archive" -ref "holdfast.local/$name:$tag" -entrypoint "$entrypoint" "$@" >/dev/null
  fi
  printf 'holdfast.local/%s:%s\n' "$name" "$tag"
}

# pulumi_env points pulumi at a stack of its own per cluster: state in files, the passphrase beside it. That of the local
# cluster is in the cluster's own folder, and so goes when the cluster goes.
pulumi_env() {
  local home plugin
  if external_cluster; then
    home=$state/pulumi/$(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}' | sha256sum | cut -c1-8)
  else
    home=$state/clusters/$cluster/pulumi
  fi
  mkdir -p "$home/state" "$home/home/plugins"
  if [[ ! -f $home/passphrase ]]; then
    (umask 077 && head -c 24 /dev/urandom | base64 >"$home/passphrase")
  fi
  if [[ -n $pulumi_bin ]]; then
    for plugin in "$pulumi_bin"/plugins/*/; do
      plugin=$(basename "$plugin")
      mkdir -p "$home/home/plugins/$plugin"
      ln -sf "$pulumi_bin/plugins/$plugin/"* "$home/home/plugins/$plugin/"
    done
    export PULUMI_HOME=$home/home PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION=true
  fi
  # Without "metadata=skip" an interrupted pulumi can leave an empty .attrs file that no later one can read.
  export PULUMI_SUPPRESS_NEO_LINK=true
  export PULUMI_BACKEND_URL="file://$home/state?metadata=skip" PULUMI_CONFIG_PASSPHRASE_FILE=$home/passphrase PULUMI_SKIP_UPDATE_CHECK=true
  pulumi_state=$home stack_config=$home/Pulumi.dev.yaml
}

# find_stack points kubectl and pulumi at the stack dev of `make up`, whose file is $stack_config, if there is one.
find_stack() {
  build_tools
  external_cluster || export KUBECONFIG=$local_kubeconfig
  pulumi_env
}

# create_stack makes the stack dev if there is none, and writes its config: the committed one, and the salt that belongs to
# this stack's passphrase. The stack is made from a folder of its own, since pulumi writes the salt beside Pulumi.yaml, and
# the checkout is not to change.
create_stack() {
  local home=$pulumi_state/project unknown
  # Pulumi passes over top-level keys that it does not know, and a mistyped "config" would so remove every tenant.
  unknown=$(sed -n 's/^\([A-Za-z][A-Za-z]*\):.*/\1/p' "$root/Pulumi.dev.yaml" | grep -vxE 'config|encryptionsalt|encryptedkey|secretsprovider|environment' || true)
  [[ -z $unknown ]] || die "Pulumi.dev.yaml: '$unknown' is not a key of a stack file; allowed are config, encryptionsalt, encryptedkey, secretsprovider, environment"
  grep -q '^config:' "$root/Pulumi.dev.yaml" || die "Pulumi.dev.yaml has no key 'config'"
  mkdir -p "$home"
  sed -n 's/^name:.*/&/p' "$root/Pulumi.yaml" >"$home/Pulumi.yaml"
  echo 'runtime: go' >>"$home/Pulumi.yaml"
  pulumi --cwd "$home" --non-interactive stack select dev >/dev/null 2>&1 ||
    pulumi --cwd "$home" --non-interactive stack init dev >/dev/null
  { cat "$root/Pulumi.dev.yaml" && grep '^encryptionsalt:' "$home/Pulumi.dev.yaml"; } >"$stack_config"
}

# update VERB FLAG...   runs an update of the stack without a question, and shows a line for each thing done.
update() {
  local verb=$1
  shift
  pulumi --non-interactive "$verb" --yes --skip-preview --stack dev --config-file "$stack_config" \
    --suppress-permalink=true --suppress-progress "$@" 2>&1 |
    { grep -vE '^@|ing \([0-9.]+m?[0-9.]*s\) *$|^ *$|pulumi stack rm' || true; } >&2
}
