#!/usr/bin/env bash
# `make down`: removes what `make up` made, the local cluster included.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
alone

if external_cluster; then
  build_tools
  pulumi_env
  cd "$root"
  if [[ -f $stack_config ]]; then
    step 'pulumi destroy'
    pulumi --non-interactive destroy --yes --skip-preview --stack dev --config-file "$stack_config" >&2
  fi
  rm -rf "${pulumi_state:?}"
else
  # The stack's objects and its state go with the cluster, so there is nothing to destroy one by one.
  mkdir -p "$root/bin"
  (cd "$root" && go build -o "$root/bin/" ./test/cluster/cmd/cluster)
  "$root/bin/cluster" down --name "$cluster"
fi
note 'removed'
