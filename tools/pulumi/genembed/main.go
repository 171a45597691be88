// Command genembed writes the files that command pulumi-resource-kubernetes embeds, from the
// provider's module: go run ./genembed VERSION FOLDER.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const providerModule = "github.com/pulumi/pulumi-kubernetes/provider/v4"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: genembed VERSION FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "genembed:", err)
		os.Exit(1)
	}
}

func run(version, folder string) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", providerModule).Output()
	if err != nil {
		return fmt.Errorf("find module %s: %w", providerModule, err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "cmd", "pulumi-resource-kubernetes")
	// The schema in the module has a placeholder for its version; the engine compares versions.
	setVersion := func(document map[string]any) { document["version"] = version }
	if err := rewrite(filepath.Join(source, "schema.json"), filepath.Join(folder, "schema-embed.json"), setVersion); err != nil {
		return err
	}
	return rewrite(filepath.Join(source, "terraform-mapping.json"), filepath.Join(folder, "terraform-mapping-embed.json"), nil)
}

// rewrite copies a JSON document without its white space, edited on the way.
func rewrite(from, to string, edit func(map[string]any)) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var document map[string]any
	if err := json.Unmarshal(content, &document); err != nil {
		return fmt.Errorf("decode %s: %w", from, err)
	}
	if edit != nil {
		edit(document)
	}
	if content, err = json.Marshal(document); err != nil {
		return fmt.Errorf("encode %s: %w", to, err)
	}
	return os.WriteFile(to, content, 0o644)
}
