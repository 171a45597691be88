package leaseservice

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

const (
	// drainTimeout is how long a stopping replica may take to hand over its work.
	drainTimeout = 20 * time.Second
	// terminationGrace is drainTimeout and a margin to close connections and to exit in, after which the kubelet kills.
	terminationGrace = drainTimeout + 10*time.Second

	// nonRoot is the user and group that the image is made for.
	nonRoot = 65532

	dataVolume = "data"
	dataDir    = "/var/lib/lease-service"

	// readinessService is the health service that is SERVING while the replica's etcd session is alive. The empty
	// name is SERVING while the process works: liveness must not restart a replica because etcd is away.
	readinessService = "dist.system.lease.v1.LeaseService"
)

// StatefulSet builds the replicas.
//
// Pods start and stop in parallel: replicas do not depend on each other's order, and with OrderedReady a StatefulSet
// whose first pod can never start (a bad image) ignores the corrected template until somebody deletes that pod.
//
// Volumes are retained when the StatefulSet is deleted. The embedded etcd holds the fencing tokens, which must
// never fall for a name that was locked before: a resource that remembers the larger token of a holder before the
// deletion would refuse every holder after it.
func StatefulSet(ls *v1alpha1.LeaseService, settings Settings, login *Login) (*appsv1.StatefulSet, error) {
	image, err := Image(ls, settings)
	if err != nil {
		return nil, err
	}
	mode, err := TLSMode(ls, settings)
	if err != nil {
		return nil, err
	}
	mounts := secretMounts(ls, mode, login)
	labels := Labels(ls)
	if mode != v1alpha1.TLSDisabled {
		labels[labelTLS] = tlsOn
	}
	set := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: meta(ls, StatefulSetName(ls)),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            new(Replicas(ls)),
			ServiceName:         PeersName(ls),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Selector:            &metav1.LabelSelector{MatchLabels: SelectorLabels(ls.Name)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(ls, image, mode, mounts),
			},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
	if Embedded(ls) {
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{volumeClaim(ls)}
	}
	return set, nil
}

func podSpec(ls *v1alpha1.LeaseService, image string, mode v1alpha1.TLSMode, mounts []secretMount) corev1.PodSpec {
	spec := corev1.PodSpec{
		ServiceAccountName:            ServiceAccountName(ls),
		AutomountServiceAccountToken:  new(reviewsTokens(ls)),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(terminationGrace.Seconds())),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(int64(nonRoot)),
			RunAsGroup:     new(int64(nonRoot)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Affinity:                  affinity(ls),
		TopologySpreadConstraints: topologySpread(ls),
		Containers:                []corev1.Container{container(ls, image, mode, mounts)},
	}
	for _, mount := range mounts {
		spec.Volumes = append(spec.Volumes, mount.volume())
	}
	for _, secret := range ls.Spec.ImagePullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret.Name})
	}
	if scheduling := ls.Spec.Scheduling; scheduling != nil {
		spec.NodeSelector = scheduling.NodeSelector
		spec.Tolerations = scheduling.Tolerations
		spec.PriorityClassName = scheduling.PriorityClassName
	}
	if Embedded(ls) || len(mounts) > 0 {
		// The volume of a new claim belongs to root, and the files of a Secret do; changing the group of what is already
		// right is only slow.
		spec.SecurityContext.FSGroup = new(int64(nonRoot))
		spec.SecurityContext.FSGroupChangePolicy = new(corev1.FSGroupChangeOnRootMismatch)
	}
	return spec
}

func container(ls *v1alpha1.LeaseService, image string, mode v1alpha1.TLSMode, mounts []secretMount) corev1.Container {
	c := corev1.Container{
		Name:            ContainerName,
		Image:           image,
		ImagePullPolicy: pullPolicy(image),
		Args:            args(ls, mode, mounts),
		Env: []corev1.EnvVar{{
			Name:      "POD_NAME",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}},
		}},
		Ports: []corev1.ContainerPort{
			{Name: portGRPC, ContainerPort: v1alpha1.LeaseServicePort, Protocol: corev1.ProtocolTCP},
			{Name: portMetrics, ContainerPort: v1alpha1.LeaseServiceMetricsPort, Protocol: corev1.ProtocolTCP},
			{Name: portHealth, ContainerPort: v1alpha1.LeaseServiceHealthPort, Protocol: corev1.ProtocolTCP},
		},
		Resources: ls.Spec.Resources,
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot:             new(true),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		// Two minutes to start, for a slow volume; then ready as soon as the session with etcd lives, and
		// unready within four seconds of losing it; restarted only when the process answers nothing for a minute.
		StartupProbe:   probe("", 1, 120),
		ReadinessProbe: probe(readinessService, 2, 2),
		LivenessProbe:  probe("", 10, 6),
	}
	if Embedded(ls) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: dataVolume, MountPath: dataDir}}
	}
	for _, mount := range mounts {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: mount.name, MountPath: mount.dir(), ReadOnly: true})
	}
	return c
}

func args(ls *v1alpha1.LeaseService, mode v1alpha1.TLSMode, mounts []secretMount) []string {
	ttl := ls.Spec.LeaseTTLSeconds
	if ttl == 0 {
		ttl = v1alpha1.DefaultLeaseTTLSeconds
	}
	out := []string{
		"--name=$(POD_NAME)",
		fmt.Sprintf("--listen=:%d", v1alpha1.LeaseServicePort),
		fmt.Sprintf("--metrics-listen=:%d", v1alpha1.LeaseServiceMetricsPort),
		fmt.Sprintf("--health-listen=:%d", v1alpha1.LeaseServiceHealthPort),
		fmt.Sprintf("--advertise=$(POD_NAME).%s.%s.svc:%d", PeersName(ls), ls.Namespace, v1alpha1.LeaseServicePort),
		prefixFlag(ls),
		fmt.Sprintf("--lease-ttl=%ds", ttl),
		fmt.Sprintf("--drain-timeout=%ds", int(drainTimeout.Seconds())),
	}
	out = append(out, limitArgs(ls.Spec.Limits)...)
	out = append(out, authArgs(ls, mode)...)
	for _, mount := range mounts {
		out = append(out, mount.args...)
	}
	if Embedded(ls) {
		return append(out, "--data-dir="+dataDir)
	}
	return append(out, "--etcd-endpoints="+strings.Join(ls.Spec.EtcdEndpoints, ","))
}

func prefixFlag(ls *v1alpha1.LeaseService) string { return "--etcd-prefix=" + Prefix(ls) }

// Prefix is the start of every key that the replicas write to etcd.
func Prefix(ls *v1alpha1.LeaseService) string {
	if ls.Spec.Etcd != nil && ls.Spec.Etcd.Prefix != "" {
		return ls.Spec.Etcd.Prefix
	}
	return OwnPrefix(ls)
}

// pullPolicy says out loud what the API server would choose for a new object. Left to its default, the choice made
// for one image would stick to the next: nobody owns a defaulted field, so nothing changes it.
func pullPolicy(image string) corev1.PullPolicy {
	if strings.Contains(image, "@") {
		return corev1.PullIfNotPresent
	}
	_, tag, tagged := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !tagged || tag == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// probe asks on a port of its own: the kubelet can show no certificate.
func probe(service string, periodSeconds, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: v1alpha1.LeaseServiceHealthPort, Service: new(service)}},
		PeriodSeconds:    periodSeconds,
		TimeoutSeconds:   2,
		SuccessThreshold: 1,
		FailureThreshold: failures,
	}
}

// affinity prefers different nodes, and does not insist: on a cluster of one node all replicas must still run.
func affinity(ls *v1alpha1.LeaseService) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				LabelSelector: &metav1.LabelSelector{MatchLabels: SelectorLabels(ls.Name)},
				TopologyKey:   corev1.LabelHostname,
			},
		}},
	}}
}

// topologySpread spreads over zones, again without insisting.
func topologySpread(ls *v1alpha1.LeaseService) []corev1.TopologySpreadConstraint {
	return []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelTopologyZone,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: SelectorLabels(ls.Name)},
	}}
}

func volumeClaim(ls *v1alpha1.LeaseService) corev1.PersistentVolumeClaim {
	size := resource.MustParse(v1alpha1.DefaultStorageSize)
	claim := corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: dataVolume, Labels: SelectorLabels(ls.Name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  new(corev1.PersistentVolumeFilesystem),
		},
	}
	if storage := ls.Spec.Storage; storage != nil {
		if !storage.Size.IsZero() {
			size = storage.Size
		}
		if storage.StorageClassName != "" {
			claim.Spec.StorageClassName = new(storage.StorageClassName)
		}
	}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	return claim
}
