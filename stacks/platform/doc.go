// Package platform is the stack of a Holdfast platform: the operator, an etcd for development, and the tenants that the
// stack's configuration lists.
package platform
