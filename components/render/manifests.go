package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Manifest is one file.
type Manifest struct {
	// Path of the file, relative and with slashes.
	Path string
	// Content is the YAML of one object.
	Content []byte
}

// firstKinds are applied before all others, in this order; lastKinds after all others.
var (
	firstKinds = []string{
		"CustomResourceDefinition", "Namespace", "ResourceQuota", "NetworkPolicy", "ServiceAccount", "Role", "RoleBinding",
		"ConfigMap", "Service", "PodDisruptionBudget",
	}
	lastKinds = []string{"Deployment", "StatefulSet", "Application", "LeaseService"}
)

// Manifests turns the objects among the resources into files, one an object: CRDs in the folder "crds", everything else
// in a folder a namespace. The names of the files begin with a number by which they sort in the order to apply them.
// What is meant for Pulumi's provider alone is left out. The same resources give the same bytes.
func Manifests(resources []Resource) ([]Manifest, error) {
	var manifests []Manifest
	for _, res := range resources {
		if res.Fields == nil || !strings.HasPrefix(res.Type, "kubernetes:") {
			continue
		}
		manifest, err := manifestOf(res)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", res.Type, res.Name, err)
		}
		manifests = append(manifests, manifest)
	}
	slices.SortFunc(manifests, func(a, b Manifest) int { return strings.Compare(a.Path, b.Path) })
	for i := 1; i < len(manifests); i++ {
		if manifests[i].Path == manifests[i-1].Path {
			return nil, fmt.Errorf("two objects are both %s", manifests[i].Path)
		}
	}
	return manifests, nil
}

func manifestOf(res Resource) (Manifest, error) {
	kind, _ := res.Fields["kind"].(string)
	metadata, _ := res.Fields["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if kind == "" || name == "" {
		return Manifest{}, fmt.Errorf("kind %q and metadata.name %q must both be set", kind, name)
	}
	dropPulumiAnnotations(metadata)
	content, err := yaml.Marshal(res.Fields)
	if err != nil {
		return Manifest{}, fmt.Errorf("encode: %w", err)
	}
	file := fmt.Sprintf("%02d-%s-%s.yaml", rank(kind), strings.ToLower(kind), name)
	return Manifest{Path: path.Join(folder(kind, name, metadata), file), Content: content}, nil
}

func folder(kind, name string, metadata map[string]any) string {
	switch kind {
	case "CustomResourceDefinition":
		return "crds"
	case "Namespace":
		return name
	}
	if namespace, _ := metadata["namespace"].(string); namespace != "" {
		return namespace
	}
	return "cluster"
}

func rank(kind string) int {
	if i := slices.Index(firstKinds, kind); i >= 0 {
		return i
	}
	return len(firstKinds) + 1 + slices.Index(lastKinds, kind) // an unknown kind comes between the two
}

func dropPulumiAnnotations(metadata map[string]any) {
	annotations, _ := metadata["annotations"].(map[string]any)
	for key := range annotations {
		if strings.HasPrefix(key, "pulumi.com/") {
			delete(annotations, key)
		}
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}
