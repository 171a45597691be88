package review_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/internal/review"
)

func object(kind, namespace, name, spec string) []byte {
	return []byte("apiVersion: v1\nkind: " + kind + "\nmetadata:\n  name: " + name + "\n  namespace: " + namespace + "\nspec:\n  " + spec + "\n")
}

func TestCompare(t *testing.T) {
	before := map[string][]byte{
		"a/01-namespace-a.yaml": []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n"),
		"a/service.yaml":        object("Service", "a", "same", "x: 1"),
		"a/old-place.yaml":      object("Service", "a", "moved", "x: 1"),
		"o/configmap-1.yaml":    object("ConfigMap", "o", "c-1", "x: 1"),
		"o/deployment.yaml":     object("Deployment", "o", "operator", "template: {image: a}"),
		"t/tenant.yaml":         object("LeaseService", "t", "t", "image: a"),
	}
	after := map[string][]byte{
		"a/service.yaml":     object("Service", "a", "same", "x: 1"),
		"a/new-place.yaml":   object("Service", "a", "moved", "x: 1"),
		"o/configmap-2.yaml": object("ConfigMap", "o", "c-2", "x: 2"),
		"o/deployment.yaml":  object("Deployment", "o", "operator", "template: {image: b}"),
		"t/tenant.yaml":      object("LeaseService", "t", "t", "replicas: 3"),
		"u/tenant.yaml":      object("LeaseService", "u", "u", "replicas: 3"),
	}
	changes, err := review.Compare(before, after)
	require.NoError(t, err)
	var summary []string
	for _, c := range changes {
		summary = append(summary, strings.Join(append([]string{c.Verb, c.Object}, c.Effects...), " | "))
		require.NotEmpty(t, c.Diff)
	}
	require.Equal(t, []string{
		"removed | Namespace a | everything in the namespace is deleted",
		"renamed | ConfigMap o/c-2",
		"changed | Deployment o/operator | its pods are replaced",
		"changed | LeaseService t/t | its pods are replaced one after the other; leases are handed over",
		"added | LeaseService u/u",
	}, summary)
	require.Contains(t, changes[0].Diff, "--- a/a/01-namespace-a.yaml\n+++ /dev/null\n")
	require.Contains(t, changes[2].Diff, "-  template: {image: a}\n+  template: {image: b}\n")

	var out strings.Builder
	require.NoError(t, review.Write(&out, "dev", "main", changes))
	require.Contains(t, out.String(), "stack dev, against main: 5 object(s)\n  removed  Namespace a  (everything in the namespace is deleted)\n")
	require.Contains(t, out.String(), changes[4].Diff)
}

func TestNoChange(t *testing.T) {
	files := map[string][]byte{"a.yaml": object("Service", "a", "a", "x: 1")}
	changes, err := review.Compare(files, files)
	require.NoError(t, err)
	require.Empty(t, changes)
	var out strings.Builder
	require.NoError(t, review.Write(&out, "dev", "main", changes))
	require.Equal(t, "stack dev deploys what it does at main\n", out.String())
}

func TestTwoFilesForOneObjectAreRefused(t *testing.T) {
	_, err := review.Compare(nil, map[string][]byte{"a.yaml": object("Service", "a", "a", "x: 1"), "b.yaml": object("Service", "a", "a", "x: 2")})
	require.ErrorContains(t, err, "are both Service a/a")
	_, err = review.Compare(map[string][]byte{"a.yaml": []byte("\t")}, nil)
	require.ErrorContains(t, err, "before: a.yaml")
}
