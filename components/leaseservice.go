package components

import (
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

// LeaseServiceArgs configures a [LeaseService].
type LeaseServiceArgs struct {
	// Metadata of the object; name and namespace are required.
	Metadata metav1.ObjectMeta
	// Spec is sent as it is, but for zero Replicas and LeaseTTLSeconds, which become 1 and
	// [v1alpha1.DefaultLeaseTTLSeconds].
	Spec v1alpha1.LeaseServiceSpec
	// Autoscaled leaves spec.replicas out, whatever Spec says: an autoscaler owns the field.
	Autoscaled bool
	// SkipAwait lets the update go on before the object is Ready.
	SkipAwait bool
}

// LeaseService is the custom resource LeaseService. Unless told otherwise an update waits until its condition Ready is
// True for the generation that was applied.
type LeaseService struct {
	pulumi.CustomResourceState

	// Metadata is the object's metadata as the API server returned it.
	Metadata pulumi.MapOutput `pulumi:"metadata"`
	// Spec with the API server's defaults filled in.
	Spec pulumi.MapOutput `pulumi:"spec"`
	// Status as the operator reported it when the object became Ready.
	Status pulumi.MapOutput `pulumi:"status"`
}

// NewLeaseService registers a LeaseService under the logical name.
func NewLeaseService(
	ctx *pulumi.Context, name string, args *LeaseServiceArgs, opts ...pulumi.ResourceOption,
) (*LeaseService, error) {
	if err := checkMetadata("LeaseService", name, args.Metadata); err != nil {
		return nil, err
	}
	res := &LeaseService{}
	object := leaseServiceObject(args)
	wait := awaitLeaseService(max(object.Spec.Replicas, args.Spec.Replicas))
	opts = append([]pulumi.ResourceOption{timeouts(wait, wait, "5m")}, opts...)
	if err := kube.Register(ctx, name, object, res, opts...); err != nil {
		return nil, err
	}
	return res, nil
}

// awaitLeaseService is how long an update waits for Ready. Replicas are replaced one after the other, so it grows with
// their number; it is longer than the operator takes to say that a rollout is stuck.
func awaitLeaseService(replicas int32) string {
	return (4*time.Minute + time.Duration(replicas)*30*time.Second).String()
}

func leaseServiceObject(args *LeaseServiceArgs) *v1alpha1.LeaseService {
	object := &v1alpha1.LeaseService{
		TypeMeta:   kube.Type(v1alpha1.GroupVersion, "LeaseService"),
		ObjectMeta: awaited(args.Metadata, !args.SkipAwait),
		Spec:       *args.Spec.DeepCopy(),
	}
	switch {
	case args.Autoscaled:
		object.Spec.Replicas = 0 // which is not sent
	case object.Spec.Replicas == 0:
		object.Spec.Replicas = 1
	}
	if object.Spec.LeaseTTLSeconds == 0 {
		object.Spec.LeaseTTLSeconds = v1alpha1.DefaultLeaseTTLSeconds
	}
	return object
}
