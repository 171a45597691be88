// Command pulumi-resource-holdfast serves the components to Pulumi programs in every language. Pulumi starts it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/components/provider"
)

func main() {
	if err := provider.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-holdfast:", err)
		os.Exit(1)
	}
}
