# `make up` and `make test` need nothing but Go, git, make and root on a Debian-like machine.
# What the targets do stands in the scripts that they call.
.DEFAULT_GOAL := help
.PHONY: help up down status test test-unit test-e2e robustness bench lint generate render preview handover destroy images push tools

export CGO_ENABLED ?= 0

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## The main job: cluster (or KUBECONFIG's), pulumi up, a lease acquired
	@tools/dev/up.sh

down: ## Remove all that `make up` made
	@tools/dev/down.sh

status: ## Show cluster, stack and tenants
	@tools/dev/status.sh

test: test-unit test-e2e ## Run all tests

test-unit: ## Run all tests but the end-to-end ones (real etcd, API server, Pulumi mocks)
	@tools/dev/test-unit.sh

test-e2e: ## Run the tests on local clusters of their own, two at a time
	@tools/dev/test-e2e.sh

robustness: ## Run lease services under faults for long and check what clients saw: make robustness DURATION=10m SEED=1
	@DURATION=$(DURATION) RUNS=$(RUNS) SEED=$(SEED) CLUSTERS=$(CLUSTERS) tools/dev/robustness.sh

bench: ## Measure against named peers, write docs/performance.md
	@tools/dev/bench.sh

lint: ## Run the linters
	@tools/dev/lint.sh

generate: ## Write all generated files
	@tools/generate.sh

render: ## Write the manifests of a stack to stacks/gitops: make render [ENV=dev] [OUT=folder] (or LIVE=1: the stack of make up)
	@OUT=$(OUT) LIVE=$(LIVE) tools/dev/render.sh $(ENV)

preview: ## Show what the checkout would deploy against a revision: make preview ENV=dev BASE=origin/main (or LIVE=1: the cluster)
	@ENV=$(ENV) BASE=$(BASE) LIVE=$(LIVE) tools/dev/preview.sh

handover: ## Move a stack to another owner: make handover TO=gitops|pulumi [ENV=dev] [TENANT=name] [DRY_RUN=1] [UNLOCK=1] [GIT_URL=url]
	@ENV=$(ENV) TENANT=$(TENANT) DRY_RUN=$(DRY_RUN) UNLOCK=$(UNLOCK) GIT_URL=$(GIT_URL) tools/dev/handover.sh -to $(TO)

destroy: ## Take a stack back from GitOps and destroy it: make destroy ENV=dev
	@ENV=$(ENV) UNLOCK=$(UNLOCK) tools/dev/handover.sh -to pulumi -destroy

tools: ## Build all pinned tools into the cache
	@tools/build.sh kubernetes netpol pulumi argocd flux languages generate lint

images: ## Build the images as archives for the local cluster
	@bash -c '. tools/dev/lib.sh; build_tools; build_binaries; find_images; ls -l "$$images"'

push: ## Build multi-architecture images and push them: make push REGISTRY=host/path TAG=v1
	docker buildx build --platform linux/amd64,linux/arm64 --target operator -t $(REGISTRY)/operator:$(TAG) --push -f tools/dev/Dockerfile .
	docker buildx build --platform linux/amd64,linux/arm64 --target lease-service -t $(REGISTRY)/lease-service:$(TAG) --push -f tools/dev/Dockerfile .
