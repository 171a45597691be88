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
    held=$(pulumi --non-interactive stack export --stack dev) || die "the stack's state cannot be read; nothing was removed"
    if [[ $held == *holdfast:index:GitOpsHandover* ]]; then
      # A plain destroy would delete what keeps the objects and leave them, and then there would be no state to find them by.
      step 'Taking the stack back from GitOps, and pulumi destroy'
      env -u PULUMI_BACKEND_URL -u TENANT -u DRY_RUN ENV=dev "$root/tools/dev/handover.sh" -to pulumi -destroy
    else
      step 'pulumi destroy'
      update destroy
    fi
  fi
  rm -rf "${pulumi_state:?}"
else
  # The stack's objects and its state go with the cluster, so there is nothing to destroy one by one.
  mkdir -p "$root/bin"
  (cd "$root" && go build -o "$root/bin/" ./test/cluster/cmd/cluster)
  "$root/bin/cluster" down --name "$cluster"
  # Images are shared by the clusters of one state folder.
  [[ -n $(ls -A "$state/clusters" 2>/dev/null) ]] || rm -rf "${state:?}/images"
fi
note "removed; the tools stay in their cache for the next time"
