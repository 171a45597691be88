package platform

import (
	"maps"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// unawaited are the types of objects that may never become ready, such as those of an image that cannot be pulled. Their
// deletion, or that of the namespace around them, is waited for all the same.
var unawaited = map[string]bool{
	"kubernetes:apps/v1:Deployment":                true,
	"kubernetes:apps/v1:StatefulSet":               true,
	"kubernetes:dist.system/v1alpha1:LeaseService": true,
}

// skipReadiness has an update not wait until what it applies is ready: it is about to be destroyed.
func skipReadiness(args *pulumi.ResourceTransformationArgs) *pulumi.ResourceTransformationResult {
	props, ok := args.Props.(pulumi.Map)
	if !ok || !unawaited[args.Type] {
		return nil
	}
	metadata, _ := props["metadata"].(pulumi.Map)
	annotations, _ := metadata["annotations"].(pulumi.Map)
	props, metadata = maps.Clone(props), maps.Clone(metadata)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = pulumi.Map{}
	}
	annotations["pulumi.com/skipAwait"] = pulumi.String("true")
	metadata["annotations"] = annotations
	props["metadata"] = metadata
	return &pulumi.ResourceTransformationResult{Props: props, Opts: args.Opts}
}
