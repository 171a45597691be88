package tenants_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/platform"
	"github.com/holdfast-io/holdfast/stacks/tenants"
)

const project = "holdfast-tenants"

// values is the least configuration that is right, with changes made to it; an empty change takes the key away.
func values(changes map[string]string) map[string]string {
	all := map[string]string{
		"holdfast:platform":  "organization/holdfast/dev",
		"holdfast:space":     "team-b",
		"holdfast:tenants":   `[{"name": "orders"}]`,
		"kubernetes:context": "local",
	}
	for key, value := range changes {
		if value == "" {
			delete(all, key)
			continue
		}
		all[key] = value
	}
	return all
}

func problems(t *testing.T, err error) []string {
	t.Helper()
	var configError *tenants.ConfigError
	require.ErrorAs(t, err, &configError)
	var got []string
	for _, problem := range configError.Problems {
		got = append(got, problem.String())
	}
	return got
}

func TestParseConfigRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes map[string]string
		want    []string
	}{
		{"what is missing", map[string]string{"holdfast:platform": "", "holdfast:space": "", "holdfast:tenants": ""}, []string{
			"platform: is required", "space: is required", "tenants: is required",
		}},
		{"an unknown key", map[string]string{"holdfast:tenats": `[]`}, []string{
			"tenats: is not a known key; allowed: platform, space, tenants",
		}},
		{"a key in the project's own namespace", map[string]string{"holdfast-tenants:tenants": `[]`}, []string{
			"tenants: is set as holdfast-tenants:tenants, which nobody reads; set holdfast:tenants",
		}},
		{"a stack without its project", map[string]string{"holdfast:platform": "dev"}, []string{
			`platform: "dev" is not allowed; allowed is organization/project/stack, such as organization/holdfast/dev`,
		}},
		{"the namespace is not the team's to choose", map[string]string{"holdfast:tenants": `[{"name": "orders", "paused": true}, {"name": "orders", "replicas": 0}]`}, []string{
			"tenants[1] (orders): replicas: 0 is below the minimum 1",
			`tenants[1] (orders): name: "orders" is taken by tenants[0] (orders); each needs its own`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tenants.ParseConfig(project, values(tc.changes), nil)
			require.Equal(t, tc.want, problems(t, err))
		})
	}
	_, err := tenants.ParseConfig(project, values(map[string]string{"holdfast:tenants": `[{"name": "orders", "namespace": "other"}]`}), nil)
	require.ErrorContains(t, err, "tenants[0] (orders): namespace: is not a known key")
	_, err = tenants.ParseConfig(project, values(nil), []string{"holdfast:space"})
	require.ErrorContains(t, err, "holdfast:space: holds an encrypted value")
}

func TestTheCommittedExampleIsRight(t *testing.T) {
	content, err := os.ReadFile("Pulumi.dev.yaml")
	require.NoError(t, err)
	example, err := platform.StackFile(content)
	require.NoError(t, err)
	config, err := tenants.ParseConfig(project, example, nil)
	require.NoError(t, err)
	require.Equal(t, "team-b", config.Space)
	require.Equal(t, "orders", config.Tenants[0].Name)
}
