//go:build tools

// Package tools names the commands that are built from other modules.
package tools

import _ "github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml"
