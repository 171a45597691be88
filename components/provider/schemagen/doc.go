// Package schemagen makes the Pulumi schema of the components from their Go types and the comments on them.
//
// What Go says decides: a field is called as in JSON, or else by its own name beginning in lower case; an argument whose
// comment ends a sentence in "; required" is required; a type of constants is an enumeration. Nobody writes the schema
// by hand, and it cannot say anything else than the components do.
package schemagen
