package render

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// CRDFolder is the folder of the CustomResourceDefinitions, and ClusterFolder that of other objects without a namespace
// whose component has none either.
const (
	CRDFolder     = "crds"
	ClusterFolder = "cluster"
)

// Manifest is one file.
type Manifest struct {
	// Path of the file, relative and with slashes.
	Path string
	// Content is the YAML of one object.
	Content []byte
	// Object is that object, a tree as in [Resource].
	Object map[string]any
	// URN of the resource that registered it.
	URN string
}

// Folder is the folder of the manifest.
func (m Manifest) Folder() string { return path.Dir(m.Path) }

// Annotations by which Argo CD and Flux learn what Pulumi knows from a resource's options.
const (
	annotationSyncWave    = "argocd.argoproj.io/sync-wave"
	annotationSyncOptions = "argocd.argoproj.io/sync-options"
	annotationFluxPrune   = "kustomize.toolkit.fluxcd.io/prune"
)

// firstKinds are applied before all others, in this order; lastKinds after all others.
var (
	firstKinds = []string{
		kindCRD, "Namespace", "ResourceQuota", "NetworkPolicy", "ServiceAccount", "Role", "RoleBinding",
		"ConfigMap", "Service", "PodDisruptionBudget",
	}
	lastKinds = []string{"Deployment", "StatefulSet", "Application", "LeaseService"}
)

// Manifests turns the objects among the resources into files, one an object: CRDs in the folder "crds", everything else
// in a folder a namespace, what is in none with the rest of its component. The names of the files begin with a number by which they sort in the order to apply them.
// What is meant for Pulumi's provider alone is left out. The same resources give the same bytes.
//
// Argo CD applies a folder in waves and waits for the health of each: the namespace, what pods need, the pods, and last
// the custom resources; it prunes the other way round. Flux has that order built in. An object that the stack retains
// on delete is one that neither may prune, and so is a CRD, which would take every object of its kind along.
func Manifests(resources []Resource) ([]Manifest, error) {
	var manifests []Manifest
	homes := componentNamespaces(resources)
	for _, res := range resources {
		if res.Fields == nil || !strings.HasPrefix(res.Type, "kubernetes:") {
			continue
		}
		manifest, err := manifestOf(res, homes[res.Parent])
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

// componentNamespaces are the namespaces that components have objects in, by the component's URN: the one that a component
// makes, else that of its first object.
func componentNamespaces(resources []Resource) map[string]string {
	made, used := map[string]string{}, map[string]string{}
	for _, res := range resources {
		metadata, _ := res.Fields["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		namespace, _ := metadata["namespace"].(string)
		switch {
		case res.Fields["kind"] == "Namespace":
			made[res.Parent] = name
		case namespace != "" && used[res.Parent] == "":
			used[res.Parent] = namespace
		}
	}
	maps.Copy(used, made)
	return used
}

// manifestOf makes the manifest; home is the folder of an object that has no namespace itself.
func manifestOf(res Resource, home string) (Manifest, error) {
	kind, _ := res.Fields["kind"].(string)
	metadata, _ := res.Fields["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if kind == "" || name == "" {
		return Manifest{}, fmt.Errorf("kind %q and metadata.name %q must both be set", kind, name)
	}
	annotate(metadata, kind, res)
	content, err := yaml.Marshal(res.Fields)
	if err != nil {
		return Manifest{}, fmt.Errorf("encode: %w", err)
	}
	folder := home
	switch namespace, _ := metadata["namespace"].(string); {
	case kind == kindCRD:
		folder = CRDFolder
	case kind == "Namespace":
		folder = name
	case namespace != "":
		folder = namespace
	case home == "":
		folder = ClusterFolder
	}
	file := fmt.Sprintf("%02d-%s-%s.yaml", rank(kind), strings.ToLower(kind), name)
	return Manifest{Path: path.Join(folder, file), Content: content, Object: res.Fields, URN: res.URN}, nil
}

const kindCRD = "CustomResourceDefinition"

func rank(kind string) int {
	if i := slices.Index(firstKinds, kind); i >= 0 {
		return i
	}
	return len(firstKinds) + 1 + slices.Index(lastKinds, kind) // an unknown kind comes between the two
}

// annotate exchanges what Pulumi's provider reads for what Argo CD and Flux read.
func annotate(metadata map[string]any, kind string, res Resource) {
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	maps.DeleteFunc(annotations, func(key string, _ any) bool { return strings.HasPrefix(key, "pulumi.com/") })
	if wave := syncWave(kind, res.Fields); wave != "" {
		annotations[annotationSyncWave] = wave
	}
	if res.RetainOnDelete || kind == kindCRD {
		annotations[annotationSyncOptions] = "Prune=false,Delete=false"
		annotations[annotationFluxPrune] = "disabled"
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
		return
	}
	metadata["annotations"] = annotations
}

// syncWave is empty for wave 0, the default. There are few waves, since Argo CD pauses for two seconds after each.
func syncWave(kind string, fields map[string]any) string {
	apiVersion, _ := fields["apiVersion"].(string)
	switch {
	case kind == "Namespace":
		return "-1"
	case kind == "Deployment", kind == "StatefulSet":
		return "1"
	case strings.HasPrefix(apiVersion, v1alpha1.GroupVersion.Group+"/"):
		return "2"
	default:
		return ""
	}
}
