package components

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-io/holdfast/components/kube"
)

const (
	devEtcdType       = "holdfast:index:DevEtcd"
	devEtcdName       = "etcd"
	devEtcdPort int32 = 2379
	devEtcdDir        = "/var/lib/etcd"
	devEtcdVol        = "data"
)

// DefaultDevEtcdNamespace is the namespace of a [DevEtcd] that names none.
const DefaultDevEtcdNamespace = "holdfast-etcd"

// DevEtcdArgs configures a [DevEtcd].
type DevEtcdArgs struct {
	// Namespace that is made for it. Empty takes [DefaultDevEtcdNamespace].
	Namespace string
	// Image whose command "etcd" is run; required.
	Image string
	// ClientNamespaces are the namespaces whose pods may connect. None: nobody may.
	ClientNamespaces []string
	// Storage is the size of its volume. Zero keeps the data in the pod, where it is lost with the pod.
	Storage resource.Quantity
	// StorageClassName of the volume; empty takes the cluster's default.
	StorageClassName string
	// Resources of the container.
	Resources corev1.ResourceRequirements
}

// DevEtcd is an etcd of one member without authentication or TLS: for development, never for production.
type DevEtcd struct {
	pulumi.ResourceState

	// Endpoint is the client URL inside the cluster, known once etcd serves.
	Endpoint pulumi.StringOutput `pulumi:"endpoint"`

	objects []pulumi.Resource
}

// Objects are all objects in it. What comes after the DevEtcd should depend on them and not on the
// component: the SDK takes a component for the objects that have been registered in it by the time it looks, and it looks
// before all of them are.
func (e *DevEtcd) Objects() []pulumi.Resource { return e.objects }

// DevEtcdEndpoint is the client URL of a [DevEtcd] in the namespace.
func DevEtcdEndpoint(namespace string) string {
	return fmt.Sprintf("http://%s.%s.svc:%d", devEtcdName, orDefault(namespace, DefaultDevEtcdNamespace), devEtcdPort)
}

// NewDevEtcd registers a DevEtcd.
func NewDevEtcd(
	ctx *pulumi.Context, name string, args *DevEtcdArgs, opts ...pulumi.ResourceOption,
) (*DevEtcd, error) {
	if args.Image == "" {
		return nil, fmt.Errorf("DevEtcd %s: image is required", name)
	}
	etcd := &DevEtcd{}
	if err := ctx.RegisterComponentResource(devEtcdType, name, etcd, opts...); err != nil {
		return nil, fmt.Errorf("register DevEtcd %s: %w", name, err)
	}
	namespace := orDefault(args.Namespace, DefaultDevEtcdNamespace)
	own := children{ctx: ctx, name: name, parent: etcd, made: &etcd.objects}
	ns, err := own.add("namespace", restrictedNamespace(namespace, devEtcdLabels()), timeouts("", "", "5m"))
	if err != nil {
		return nil, err
	}
	_, err = own.addAll([]child{
		{"networkpolicy", devEtcdPolicy(namespace, args.ClientNamespaces)},
		{"service", devEtcdService(namespace)},
	}, pulumi.DependsOn([]pulumi.Resource{ns}))
	if err != nil {
		return nil, err
	}
	set, err := own.add("statefulset", devEtcdStatefulSet(namespace, args),
		pulumi.DependsOn([]pulumi.Resource{ns}), timeouts("5m", "5m", "5m"))
	if err != nil {
		return nil, err
	}
	etcd.Endpoint = after(set, DevEtcdEndpoint(namespace))
	return etcd, ctx.RegisterResourceOutputs(etcd, pulumi.Map{"endpoint": etcd.Endpoint})
}

func devEtcdLabels() map[string]string {
	return map[string]string{labelName: devEtcdName, labelPartOf: partOf}
}

func devEtcdService(namespace string) *corev1.Service {
	meta := objectMeta(namespace, devEtcdName, devEtcdLabels())
	// The StatefulSet is awaited; the provider's own wait for a Service's endpoints adds ten seconds and no knowledge.
	meta.Annotations = map[string]string{annotationSkipAwait: "true"}
	return &corev1.Service{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "Service"),
		ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Selector: devEtcdLabels(),
			Ports: []corev1.ServicePort{{
				Name: "client", Protocol: corev1.ProtocolTCP, Port: devEtcdPort, TargetPort: intstr.FromString("client"),
			}},
		},
	}
}

func devEtcdPolicy(namespace string, clients []string) *networkingv1.NetworkPolicy {
	spec := networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}
	if len(clients) > 0 {
		spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{namespacesNamed(clients...)},
			Ports: []networkingv1.NetworkPolicyPort{policyPort(corev1.ProtocolTCP, devEtcdPort)},
		}}
	}
	return networkPolicy(objectMeta(namespace, devEtcdName, devEtcdLabels()), spec)
}

func devEtcdStatefulSet(namespace string, args *DevEtcdArgs) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{
		TypeMeta:   kube.Type(appsv1.SchemeGroupVersion, "StatefulSet"),
		ObjectMeta: objectMeta(namespace, devEtcdName, devEtcdLabels()),
		Spec: appsv1.StatefulSetSpec{
			Replicas:    new(int32(1)),
			ServiceName: devEtcdName,
			Selector:    &metav1.LabelSelector{MatchLabels: devEtcdLabels()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: devEtcdLabels()},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: new(false),
					EnableServiceLinks:           new(false),
					SecurityContext:              restrictedPod(),
					Containers:                   []corev1.Container{devEtcdContainer(namespace, args)},
				},
			},
		},
	}
	if args.Storage.IsZero() {
		set.Spec.Template.Spec.Volumes = []corev1.Volume{{
			Name: devEtcdVol, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		}}
		return set
	}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{devEtcdClaim(args)}
	return set
}

func devEtcdContainer(namespace string, args *DevEtcdArgs) corev1.Container {
	return corev1.Container{
		Name:  devEtcdName,
		Image: args.Image,
		Command: []string{
			"etcd",
			"--name=dev",
			"--data-dir=" + devEtcdDir + "/data",
			fmt.Sprintf("--listen-client-urls=http://0.0.0.0:%d", devEtcdPort),
			"--advertise-client-urls=" + DevEtcdEndpoint(namespace),
			"--listen-peer-urls=http://127.0.0.1:2380",
			"--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=dev=http://127.0.0.1:2380",
			"--auto-compaction-mode=periodic",
			"--auto-compaction-retention=1h",
		},
		// The image may have etcd at its root or where a distribution puts it.
		Env:             []corev1.EnvVar{{Name: "PATH", Value: "/:/usr/local/bin:/usr/bin:/bin"}},
		Ports:           []corev1.ContainerPort{{Name: "client", Protocol: corev1.ProtocolTCP, ContainerPort: devEtcdPort}},
		Resources:       args.Resources,
		LivenessProbe:   httpProbe("/livez", "client"),
		ReadinessProbe:  httpProbe("/readyz", "client"),
		SecurityContext: restrictedContainer(),
		VolumeMounts:    []corev1.VolumeMount{{Name: devEtcdVol, MountPath: devEtcdDir}},
	}
}

func devEtcdClaim(args *DevEtcdArgs) corev1.PersistentVolumeClaim {
	claim := corev1.PersistentVolumeClaim{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "PersistentVolumeClaim"),
		ObjectMeta: metav1.ObjectMeta{Name: devEtcdVol},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: args.Storage},
			},
		},
	}
	if args.StorageClassName != "" {
		claim.Spec.StorageClassName = new(args.StorageClassName)
	}
	return claim
}
