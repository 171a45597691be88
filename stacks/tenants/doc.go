// Package tenants is the stack of a team that keeps its tenants by itself: LeaseServices in a namespace that the platform
// prepared for it, within what the platform allows. It needs rights in that namespace only, and reads everything else from
// the outputs of the platform's stack.
//
// The folder is a Pulumi project of its own; its program is in program/.
package tenants
