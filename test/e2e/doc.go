// Package e2e holds the end-to-end tests (build tag e2e): a local cluster, the real Pulumi CLI and provider,
// the operator and the lease service in real pods, and a gRPC client. tools/dev/test-e2e.sh builds what they
// need and names it in the environment.
package e2e
