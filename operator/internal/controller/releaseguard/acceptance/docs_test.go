package acceptance_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// What the documentation shows is accepted by the API server.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "..", "..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "kinds", "releaseguard.md"))
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(page), "```yaml\n")
	require.True(t, found)
	shown, _, _ = strings.Cut(shown, "```")
	example, err := os.ReadFile(filepath.Join(docs, "examples", "releaseguard.yaml"))
	require.NoError(t, err)
	f := start(t)
	for name, text := range map[string]string{"releaseguard.md": shown, "releaseguard.yaml": string(example)} {
		guard := &v1alpha1.ReleaseGuard{}
		require.NoError(t, yaml.UnmarshalStrict([]byte(text), guard), name)
		guard.Namespace = f.ns
		require.NoError(t, f.client.Create(f.ctx, guard, client.DryRunAll), name)
	}
}
