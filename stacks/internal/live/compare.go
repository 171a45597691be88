package live

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

// Difference is an object that is not as its manifest has it.
type Difference struct {
	// Object is kind, namespace and name.
	Object string
	// Lines say what would change.
	Lines []string
}

// String has a line for the object, and one for each difference.
func (d Difference) String() string { return d.Object + "\n    " + strings.Join(d.Lines, "\n    ") }

// Compare asks the API server what would change if the owner applied the manifests.
func (c *Cluster) Compare(ctx context.Context, owner Owner, manifests []map[string]any) ([]Difference, error) {
	var differences []Difference
	for _, manifest := range manifests {
		now, err := c.Get(ctx, manifest)
		if err != nil {
			return nil, err
		}
		if now == nil {
			differences = append(differences, Difference{Name(manifest), []string{"is not in the cluster"}})
			continue
		}
		then, err := c.DryRun(ctx, owner, now, manifest)
		if err != nil {
			differences = append(differences, Difference{Name(manifest), []string{fmt.Sprint(err)}})
			continue
		}
		if lines := handover.Differences(now.Object, then.Object); len(lines) > 0 {
			differences = append(differences, Difference{Name(manifest), lines})
		}
	}
	return differences, nil
}
