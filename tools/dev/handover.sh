#!/usr/bin/env bash
# `make handover TO=gitops|pulumi [ENV=dev] [TENANT=name] [DRY_RUN=1] [UNLOCK=1] [GIT_URL=url]`: moves what a stack deploys to
# another owner; `make destroy ENV=dev` takes everything back and destroys it. The stack dev of `make up` is found where that keeps
# it, and no other make works on it meanwhile; any other stack is the one that PULUMI_BACKEND_URL, the passphrase and KUBECONFIG choose, with its file in the checkout.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
environment=${ENV:-dev}
arguments=(-stack "$environment" -project "$root" "$@")
[[ -z ${TENANT:-} ]] || arguments+=(-tenant "$TENANT")
if asked DRY_RUN; then arguments+=(-dry-run); fi
if asked UNLOCK; then arguments+=(-unlock); fi
[[ -z ${GIT_URL:-} ]] || arguments+=(-git-url "$GIT_URL")
if [[ $environment == dev && -z ${PULUMI_BACKEND_URL:-} ]]; then
  stay_alone
  [[ -z $lock ]] || arguments+=(-lock "$lock")
  find_stack
  [[ -f $stack_config ]] || die "there is no stack of make up; run make up, or set PULUMI_BACKEND_URL to the stack's state"
  arguments+=(-config "$stack_config")
fi
mkdir -p "$root/bin"
(cd "$root" && go build -o "$root/bin/" ./stacks/cmd/handover)
# In the place of this shell, so that an interrupt reaches the command itself.
exec "$root/bin/handover" "${arguments[@]}"
