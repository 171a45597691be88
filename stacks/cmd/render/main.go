// Command render writes the manifests of a stack, from the very components that `pulumi up` deploys, without an engine,
// a provider or a cluster.
//
// usage: render [-root FOLDER] [-out FOLDER] ENVIRONMENT
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

type options struct {
	// root is the folder with Pulumi.<environment>.yaml.
	root string
	// out is the folder to write to; empty means stacks/gitops/<environment> under root.
	out         string
	environment string
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "folder that has Pulumi.<environment>.yaml")
	flag.StringVar(&o.out, "out", "", "folder to write to (default stacks/gitops/<environment> under the root)")
	flag.Parse()
	o.environment = flag.Arg(0)
	count, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
	fmt.Printf("%d manifests\n", count)
}

func run(o options) (int, error) {
	if o.environment == "" {
		return 0, errors.New("usage: render [-root FOLDER] [-out FOLDER] ENVIRONMENT")
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "stacks", "gitops", o.environment)
	}
	data, err := os.ReadFile(filepath.Join(o.root, "Pulumi."+o.environment+".yaml"))
	if err != nil {
		return 0, fmt.Errorf("environment %q: %w", o.environment, err)
	}
	values, err := platform.StackFile(data)
	if err != nil {
		return 0, err
	}
	config, err := platform.ParseConfig(values, nil)
	if err != nil {
		return 0, err
	}
	resources, err := render.Record(func(ctx *pulumi.Context) error { return platform.Deploy(ctx, config) })
	if err != nil {
		return 0, err
	}
	manifests, err := render.Manifests(resources)
	if err != nil {
		return 0, err
	}
	return len(manifests), write(o.out, manifests)
}

// write makes the manifests the only YAML files under the folder: what is no longer rendered has to go, for a GitOps
// controller prunes by absence.
func write(out string, manifests []render.Manifest) error {
	wanted := make([]string, 0, len(manifests))
	for _, manifest := range manifests {
		path := filepath.Join(out, filepath.FromSlash(manifest.Path))
		wanted = append(wanted, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, manifest.Content, 0o644); err != nil {
			return err
		}
	}
	var folders []string
	err := filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			folders = append(folders, path)
		case filepath.Ext(path) == ".yaml" && !slices.Contains(wanted, path):
			return os.Remove(path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		if entries, err := os.ReadDir(folder); err == nil && len(entries) == 0 {
			if err := os.Remove(folder); err != nil {
				return err
			}
		}
	}
	return nil
}
