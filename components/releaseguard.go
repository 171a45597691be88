package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// ReleaseGuardArgs configures a [ReleaseGuard].
type ReleaseGuardArgs struct {
	// Metadata of the object; name and namespace are required. The namespace is that of the Applications.
	Metadata metav1.ObjectMeta
	// Spec is sent as it is.
	Spec v1alpha1.ReleaseGuardSpec
	// Await lets the update wait until every ring is proved, which takes at least the soak times of all rings, and fail
	// when that does not come within Timeout. False: the update only declares what is wanted.
	Await bool
	// Timeout of that wait, such as "2h". Empty means "1h".
	Timeout string
}

// ReleaseGuard is the custom resource ReleaseGuard. Its Applications' targetRevision is the operator's from then on:
// whatever declares them must leave that field alone.
type ReleaseGuard struct {
	pulumi.CustomResourceState

	// Metadata is the object's metadata as the API server returned it.
	Metadata pulumi.MapOutput `pulumi:"metadata"`
	// Spec with the API server's defaults filled in.
	Spec pulumi.MapOutput `pulumi:"spec"`
	// Status as the operator reported it.
	Status pulumi.MapOutput `pulumi:"status"`
}

// NewReleaseGuard registers a ReleaseGuard under the logical name.
func NewReleaseGuard(
	ctx *pulumi.Context, name string, args *ReleaseGuardArgs, opts ...pulumi.ResourceOption,
) (*ReleaseGuard, error) {
	if err := checkMetadata("ReleaseGuard", name, args.Metadata); err != nil {
		return nil, err
	}
	res := &ReleaseGuard{}
	wait := orDefault(args.Timeout, "1h")
	opts = append([]pulumi.ResourceOption{timeouts(wait, wait, "2m")}, opts...)
	if err := kube.Register(ctx, name, releaseGuardObject(args), res, opts...); err != nil {
		return nil, err
	}
	return res, nil
}

func releaseGuardObject(args *ReleaseGuardArgs) *v1alpha1.ReleaseGuard {
	object := &v1alpha1.ReleaseGuard{
		TypeMeta:   kube.Type(v1alpha1.GroupVersion, "ReleaseGuard"),
		ObjectMeta: awaited(args.Metadata, args.Await),
		Spec:       *args.Spec.DeepCopy(),
	}
	return object
}
