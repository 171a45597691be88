// Command render writes the manifests of a stack, from the very components that `pulumi up` deploys, without an engine,
// a provider or a cluster.
//
// usage: render -stack STACK [-config FILE] [-out FOLDER]
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/holdfast-io/holdfast/components/render"
	"github.com/holdfast-io/holdfast/stacks/internal/gitsource"
	"github.com/holdfast-io/holdfast/stacks/platform"
)

type options struct {
	// stack is the name of the stack.
	stack string
	// config is the stack's file; empty means Pulumi.<stack>.yaml.
	config string
	// out is the folder to write to; empty means stacks/gitops/<stack>.
	out string
}

func main() {
	var o options
	flag.StringVar(&o.stack, "stack", "", "name of the stack; required")
	flag.StringVar(&o.config, "config", "", "the stack's file (default Pulumi.<stack>.yaml)")
	flag.StringVar(&o.out, "out", "", "folder to write to (default stacks/gitops/<stack>)")
	flag.Parse()
	count, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
	fmt.Printf("%d manifests\n", count)
}

func run(o options) (int, error) {
	if o.stack == "" {
		return 0, errors.New("usage: render -stack STACK [-config FILE] [-out FOLDER]")
	}
	if o.config == "" {
		o.config = "Pulumi." + o.stack + ".yaml"
	}
	if o.out == "" {
		o.out = filepath.Join("stacks", "gitops", o.stack)
	}
	data, err := os.ReadFile(o.config)
	if err != nil {
		return 0, fmt.Errorf("stack %q: %w", o.stack, err)
	}
	values, err := platform.StackFile(data)
	if err != nil {
		return 0, err
	}
	config, err := platform.ParseConfig(values, nil)
	if err != nil {
		return 0, err
	}
	manifests, err := platform.RenderManifests(config)
	if err != nil {
		return 0, err
	}
	return len(manifests), write(o.out, manifests)
}

// write makes the manifests the only ones under the folder: what is no longer rendered has to go, for a GitOps
// controller prunes by absence. A link that leads out of the folder is not followed.
func write(out string, manifests []render.Manifest) (err error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	wanted := make([]string, 0, len(manifests))
	for _, manifest := range manifests {
		wanted = append(wanted, manifest.Path)
		if err := root.MkdirAll(path.Dir(manifest.Path), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(manifest.Path, manifest.Content, 0o644); err != nil {
			return err
		}
	}
	return removeOthers(root, wanted)
}

// removeOthers removes the manifests and links that are not wanted, and the folders that are empty then.
func removeOthers(root *os.Root, wanted []string) error {
	var folders []string
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != ".":
			folders = append(folders, name)
		case (gitsource.IsManifest(name) || entry.Type() == fs.ModeSymlink) && !slices.Contains(wanted, name):
			return root.Remove(name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		entries, err := fs.ReadDir(root.FS(), folder)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			continue
		}
		if err := root.Remove(folder); err != nil {
			return err
		}
	}
	return nil
}
