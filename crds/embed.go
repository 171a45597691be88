// Package crds holds the CustomResourceDefinitions that controller-gen writes from operator/api, and the
// permissions that the operator needs to serve them. The operator's tests, the Pulumi components and the
// rendered manifests all take them from here, so that what is tested is what is installed.
package crds

import (
	"embed"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// File is one generated file as it was written.
type File struct {
	// Name of the file, such as "dist.system_leaseservices.yaml".
	Name string
	// Content is the YAML, one CustomResourceDefinition.
	Content []byte
}

// Files returns the generated files, ordered by name. The caller owns what it gets.
func Files() []File {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(fmt.Sprintf("reading the embedded folder: %v", err)) // an embed.FS always has its root
	}
	out := make([]File, 0, len(entries))
	for _, entry := range entries {
		content, err := files.ReadFile(entry.Name())
		if err != nil {
			panic(fmt.Sprintf("reading the embedded file %s: %v", entry.Name(), err)) // ReadDir has just named it
		}
		out = append(out, File{Name: entry.Name(), Content: content})
	}
	return out
}

// All returns the definitions, decoded strictly, ordered by the names of their files. The caller owns what it gets.
//
// It panics on YAML that does not decode: the bytes are compiled in and a unit test decodes them, so no input of
// a user can lead there, and an error would only be carried through every caller.
func All() []*apiextensionsv1.CustomResourceDefinition {
	all := Files()
	out := make([]*apiextensionsv1.CustomResourceDefinition, 0, len(all))
	for _, file := range all {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(file.Content, crd); err != nil {
			panic(fmt.Sprintf("decoding %s: %v", file.Name, err))
		}
		out = append(out, crd)
	}
	return out
}
