// Command sdkgen writes the TypeScript and Python SDKs of a Pulumi package from its schema.
//
// `pulumi package gen-sdk` asks the language's own host to do that; those of TypeScript and Python are no Go modules that
// could be built here, but the generators in them are.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/pkg/v3/codegen/nodejs"
	"github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
)

func main() {
	path := flag.String("schema", "", "file of the package's schema")
	out := flag.String("out", "", "folder that the SDKs are written to, each in one of its own")
	flag.Parse()
	if err := run(*path, *out); err != nil {
		fmt.Fprintln(os.Stderr, "sdkgen:", err)
		os.Exit(1)
	}
}

func run(path, out string) error {
	if path == "" || out == "" {
		return errors.New("-schema and -out are both required")
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for language, generate := range map[string]func(*schema.Package) (map[string][]byte, error){
		"nodejs": func(p *schema.Package) (map[string][]byte, error) {
			return nodejs.GeneratePackage("sdkgen", p, nil, nil, false, noLoader{})
		},
		"python": func(p *schema.Package) (map[string][]byte, error) {
			return python.GeneratePackage("sdkgen", p, nil, noLoader{})
		},
	} {
		bound, err := bind(content)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		files, err := generate(bound)
		if err != nil {
			return fmt.Errorf("generate for %s: %w", language, err)
		}
		if err := write(filepath.Join(out, language), files); err != nil {
			return err
		}
	}
	return nil
}

// bind checks the schema. A bound package is for one generator alone: each leaves its own marks in it.
func bind(content []byte) (*schema.Package, error) {
	var spec schema.PackageSpec
	if err := json.Unmarshal(content, &spec); err != nil {
		return nil, err
	}
	bound, problems, err := schema.BindSpec(spec, noLoader{}, schema.ValidationOptions{})
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return bound, nil
}

func write(folder string, files map[string][]byte) error {
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// noLoader has no other package: the schema refers to none.
type noLoader struct{}

var errNoLoader = errors.New("the schema refers to another package, and none is known here")

func (noLoader) LoadPackage(string, *semver.Version) (*schema.Package, error) {
	return nil, errNoLoader
}

func (noLoader) LoadPackageV2(context.Context, *schema.PackageDescriptor) (*schema.Package, error) {
	return nil, errNoLoader
}

func (noLoader) LoadPackageReference(string, *semver.Version) (schema.PackageReference, error) {
	return nil, errNoLoader
}

func (noLoader) LoadPackageReferenceV2(context.Context, *schema.PackageDescriptor) (schema.PackageReference, error) {
	return nil, errNoLoader
}
