#!/bin/sh
# Lints the protobuf sources of the lease service and generates their Go code.
# Needs buf, protoc-gen-go, protoc-gen-go-grpc and protoc-gen-go-vtproto (pinned in tools/generate) on PATH; asks no network.
set -eu
cd "$(dirname "$0")"
for module in . ../internal/lease; do
	[ -f "$module/buf.yaml" ] || continue
	(cd "$module" && buf lint && buf generate)
done
