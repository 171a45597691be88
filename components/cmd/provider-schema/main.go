// Command provider-schema writes the Pulumi schema of the components, from their Go sources below the folder that it is
// run in, to components/provider/schema.json. With -check it fails when the file is not current, and leaves it alone.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/holdfast-io/holdfast/components/provider"
	"github.com/holdfast-io/holdfast/components/provider/schemagen"
)

const module = "github.com/holdfast-io/holdfast/"

var errNotCurrent = errors.New("is not current: run make generate, and commit it")

func main() {
	check := flag.Bool("check", false, "only tell whether the file is current")
	flag.Parse()
	if err := run(".", *check); err != nil {
		fmt.Fprintln(os.Stderr, "provider-schema:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	folders := map[string]string{}
	for _, folder := range []string{"components", "operator/api/v1alpha1"} {
		folders[module+folder] = filepath.Join(root, folder)
	}
	comments, err := schemagen.ReadComments(folders)
	if err != nil {
		return err
	}
	schema, err := schemagen.Generate(provider.Components(), comments)
	if err != nil {
		return err
	}
	path := filepath.Join(root, "components/provider/schema.json")
	if !check {
		return os.WriteFile(path, schema, 0o644)
	}
	committed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(committed, schema) {
		return fmt.Errorf("%s %w", path, errNotCurrent)
	}
	return nil
}
