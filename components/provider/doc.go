// Package provider serves the components to Pulumi programs in other languages, as the package "holdfast".
//
// A component's arguments are the plain Go values that its constructor takes: the schema is made from their types (see
// package schemagen), and what a program sends is decoded into them by the rules of their JSON form, strictly. Programs
// may pass outputs of other resources anywhere. See docs/adr/0006-component-provider.md for why this is not written with
// pulumi-go-provider.
package provider
