package handover_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

const stackFile = `# Kept.
config:
  # Of the images.
  holdfast:operator: {image: "ö:1"}   # as it is

  holdfast:tenants:
    - name: team-a # the first
      replicas: &n 3

    - {name: team-b, replicas: *n}
    - # with a comment
      replicas: 1
      name: team-c
      ownership: "gitops" # pinned
encryptionsalt: v1:abc
`

func TestDeclareOwnerChangesTheOwnerAndNothingElse(t *testing.T) {
	for _, tc := range []struct{ tenant, old, now string }{
		{"", "config:\n  # Of the images.\n", "config:\n  # Of the images.\n  holdfast:ownership: pulumi\n"},
		{"team-a", "    - name: team-a # the first\n", "    - ownership: pulumi\n      name: team-a # the first\n"},
		{"team-b", "{name: team-b", "{ownership: pulumi, name: team-b"},
		{"team-c", `ownership: "gitops" # pinned`, `ownership: pulumi # pinned`},
	} {
		require.Contains(t, stackFile, tc.old)
		edited, err := handover.DeclareOwner([]byte(stackFile), tc.tenant, handover.Pulumi)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(stackFile, tc.old, tc.now, 1), string(edited))

		again, err := handover.DeclareOwner(edited, tc.tenant, handover.GitOps)
		require.NoError(t, err)
		require.Equal(t, strings.Replace(stackFile, tc.old, strings.Replace(tc.now, "pulumi", "gitops", 1), 1), string(again))
	}
}

func TestDeclareOwnerRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, tc := range map[string]struct{ file, tenant, want string }{
		"no config":        {"name: x\n", "", "no keys under config"},
		"no tenants":       {"config: {a: b}\n", "team-a", "no holdfast:tenants"},
		"another tenant":   {stackFile, "team-x", `no tenant "team-x"`},
		"an alias":         {"config:\n  a: &o pulumi\n  holdfast:ownership: *o\n", "", "as a plain word"},
		"an anchored item": {"config:\n  holdfast:tenants:\n    - &t {name: a}\n", "a", "by hand"},
		"a shared item":    {"config:\n  x: &t\n    name: a\n  holdfast:tenants:\n    - *t\n", "a", "no tenant"},
		"no YAML":          {"\t", "", "read the stack's file"},
	} {
		_, err := handover.DeclareOwner([]byte(tc.file), tc.tenant, handover.GitOps)
		require.ErrorContains(t, err, tc.want, name)
	}
}
