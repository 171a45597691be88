// Package kube registers typed Kubernetes API objects with Pulumi.
//
// Components build plain values of k8s.io/api types, the same types that the operator and the API server use,
// and [New] hands them to the Pulumi Kubernetes provider as they are. The generated Pulumi SDK for Kubernetes
// is not imported at all: it repeats those types, and its core group alone takes most of a minute and about
// three gigabytes to compile. See docs/adr/0004-pulumi-without-the-typed-sdk.md.
package kube
