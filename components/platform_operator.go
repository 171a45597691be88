package components

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/crds"
)

const (
	operatorConfigDir  = "/etc/holdfast"
	operatorConfigFile = "operator.yaml"
	configHashLength   = 10

	metricsPort int32 = 8080
	healthPort  int32 = 8081

	defaultLogLevel                = "info"
	defaultMaxConcurrentReconciles = 4
	gracefulShutdownTimeout        = "20s"
	// terminationGraceSeconds is longer than gracefulShutdownTimeout, after which the kubelet kills.
	terminationGraceSeconds int64 = 30
)

// operatorConfig is the file that the operator reads. Its fields are the operator's, which decodes them strictly.
type operatorConfig struct {
	APIVersion              string                 `json:"apiVersion"`
	Kind                    string                 `json:"kind"`
	Namespaces              []string               `json:"namespaces"`
	NamespacesFromMaps      bool                   `json:"namespacesFromConfigMaps"`
	LeaderElection          operatorLeaderElection `json:"leaderElection"`
	Metrics                 operatorBindAddress    `json:"metrics"`
	Health                  operatorBindAddress    `json:"health"`
	Log                     operatorLog            `json:"log"`
	GracefulShutdownTimeout string                 `json:"gracefulShutdownTimeout"`
	LeaseService            operatorLeaseService   `json:"leaseService"`
	ZooKeeper               *operatorZooKeeper     `json:"zookeeper,omitempty"`

	ReleaseGuard *ReleaseGuardOperatorArgs `json:"releaseGuard,omitempty"`
}

type operatorLeaderElection struct {
	Enabled   bool   `json:"enabled"`
	Namespace string `json:"namespace"`
}

type operatorBindAddress struct {
	BindAddress string `json:"bindAddress"`
}

type operatorLog struct {
	Level string `json:"level"`
}

type operatorLeaseService struct {
	Image                   string            `json:"image"`
	MaxConcurrentReconciles int               `json:"maxConcurrentReconciles"`
	TLS                     *operatorLeaseTLS `json:"tls,omitempty"`
	ProvisionEtcd           bool              `json:"provisionEtcd,omitempty"`
	OperatorChanges         string            `json:"operatorChanges,omitempty"`
}

// operatorLeaseTLS is there when it says something else than the operator's defaults.
type operatorLeaseTLS struct {
	Enabled             *bool  `json:"enabled,omitempty"`
	CertificateLifetime string `json:"certificateLifetime,omitempty"`
}

func (a *OperatorArgs) leaseTLS() *operatorLeaseTLS {
	out := operatorLeaseTLS{CertificateLifetime: a.CertificateLifetime}
	if a.PlainLeaseServices {
		out.Enabled = new(false)
	}
	if out == (operatorLeaseTLS{}) {
		return nil
	}
	return &out
}

// operatorConfigMap is named after its content, as the operator reads the file once, at its start: another configuration is
// another object, which rolls the pods, while a pod of the old revision that restarts meanwhile still has its own.
func operatorConfigMap(namespace string, args *PlatformArgs) (*corev1.ConfigMap, error) {
	concurrency := args.Operator.MaxConcurrentReconciles
	if concurrency == 0 {
		concurrency = defaultMaxConcurrentReconciles
	}
	content, err := yaml.Marshal(operatorConfig{
		APIVersion:              "config.dist.system/v1alpha1",
		Kind:                    "OperatorConfig",
		Namespaces:              []string{},
		NamespacesFromMaps:      true,
		LeaderElection:          operatorLeaderElection{Enabled: true, Namespace: namespace},
		Metrics:                 operatorBindAddress{fmt.Sprintf(":%d", metricsPort)},
		Health:                  operatorBindAddress{fmt.Sprintf(":%d", healthPort)},
		Log:                     operatorLog{orDefault(args.Operator.LogLevel, defaultLogLevel)},
		GracefulShutdownTimeout: gracefulShutdownTimeout,
		LeaseService: operatorLeaseService{
			Image: args.Operator.LeaseServiceImage, MaxConcurrentReconciles: concurrency,
			TLS: args.Operator.leaseTLS(), ProvisionEtcd: args.Operator.ProvisionEtcd,
			OperatorChanges: args.Operator.OperatorChanges,
		},
		ZooKeeper:    args.Operator.ZooKeeper.section(),
		ReleaseGuard: args.Operator.ReleaseGuard.section(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the operator's configuration: %w", err)
	}
	sum := sha256.Sum256(content)
	name := operatorName + "-" + hex.EncodeToString(sum[:])[:configHashLength]
	return &corev1.ConfigMap{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "ConfigMap"),
		ObjectMeta: objectMeta(namespace, name, operatorLabels()),
		Data:       map[string]string{operatorConfigFile: string(content)},
		Immutable:  new(true),
	}, nil
}

// watchMarker tells the operator of a namespace, for as long as it exists. One object a namespace, and not a list in the
// configuration: an update changes objects before it deletes any, so a list would be shorter before a tenant's objects go, and
// their finalizers would wait for an operator that looks elsewhere.
func watchMarker(namespace, watched string) *corev1.ConfigMap {
	labels := operatorLabels()
	labels[crds.WatchLabel] = watched
	return &corev1.ConfigMap{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "ConfigMap"),
		ObjectMeta: objectMeta(namespace, "holdfast-watch-"+watched, labels),
	}
}

// watchRecord is the operator's to fill: it has no data here, so nobody takes out what the operator put in.
func watchRecord(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "ConfigMap"),
		ObjectMeta: objectMeta(namespace, crds.WatchRecord, operatorLabels()),
	}
}

// operatorClusterName is the name of what the operator has that is in no namespace. There may be several operators.
func operatorClusterName(namespace string) string { return operatorName + "-" + namespace }

func operatorClusterRole(namespace string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   kube.Type(rbacv1.SchemeGroupVersion, "ClusterRole"),
		ObjectMeta: objectMeta("", operatorClusterName(namespace), operatorLabels()),
		Rules:      crds.ClusterRules(),
	}
}

func operatorClusterRoleBinding(namespace string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   kube.Type(rbacv1.SchemeGroupVersion, "ClusterRoleBinding"),
		ObjectMeta: objectMeta("", operatorClusterName(namespace), operatorLabels()),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: operatorClusterName(namespace)},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: operatorName, Namespace: namespace}},
	}
}

func operatorLabels() map[string]string {
	labels := operatorSelector()
	labels[labelPartOf] = partOf
	return labels
}

func operatorSelector() map[string]string {
	return map[string]string{labelName: operatorName, labelComponent: "operator"}
}

func operatorServiceAccount(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "ServiceAccount"),
		ObjectMeta: objectMeta(namespace, operatorName, operatorLabels()),
		// The pod asks for the token itself; another pod that names this account gets none unasked.
		AutomountServiceAccountToken: new(false),
	}
}

func operatorService(namespace string) *corev1.Service {
	meta := objectMeta(namespace, operatorName, operatorLabels())
	// The Deployment is awaited; the provider's own wait for a Service's endpoints adds ten seconds and no knowledge.
	meta.Annotations = map[string]string{annotationSkipAwait: "true"}
	return &corev1.Service{
		TypeMeta:   kube.Type(corev1.SchemeGroupVersion, "Service"),
		ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Selector: operatorSelector(),
			Ports: []corev1.ServicePort{{
				Name: "metrics", Protocol: corev1.ProtocolTCP, Port: metricsPort, TargetPort: intstr.FromString("metrics"),
			}},
		},
	}
}

// operatorPolicy lets nothing in but scrapes of the metrics. Egress stays open: the operator needs the API server, whose
// address and port differ from cluster to cluster and which no selector can name.
func operatorPolicy(namespace string) *networkingv1.NetworkPolicy {
	return networkPolicy(objectMeta(namespace, operatorName, operatorLabels()), networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			Ports: []networkingv1.NetworkPolicyPort{policyPort(corev1.ProtocolTCP, metricsPort)},
		}},
	})
}

func operatorPDB(namespace string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   kube.Type(policyv1.SchemeGroupVersion, "PodDisruptionBudget"),
		ObjectMeta: objectMeta(namespace, operatorName, operatorLabels()),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             new(intstr.FromInt32(1)),
			Selector:                   &metav1.LabelSelector{MatchLabels: operatorSelector()},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

func operatorDeployment(namespace string, args *PlatformArgs, config *corev1.ConfigMap) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta:   kube.Type(appsv1.SchemeGroupVersion, "Deployment"),
		ObjectMeta: objectMeta(namespace, operatorName, operatorLabels()),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas(args)),
			Selector: &metav1.LabelSelector{MatchLabels: operatorSelector()},
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromInt32(1)),
				},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: operatorLabels()},
				Spec:       operatorPod(args, config.Name),
			},
		},
	}
}

func operatorPod(args *PlatformArgs, configName string) corev1.PodSpec {
	pod := corev1.PodSpec{
		ServiceAccountName:            operatorName,
		AutomountServiceAccountToken:  new(true),
		EnableServiceLinks:            new(false),
		SecurityContext:               restrictedPod(),
		TerminationGracePeriodSeconds: new(terminationGraceSeconds),
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 100,
				PodAffinityTerm: corev1.PodAffinityTerm{
					LabelSelector: &metav1.LabelSelector{MatchLabels: operatorSelector()},
					TopologyKey:   corev1.LabelHostname,
				},
			}},
		}},
		Containers: []corev1.Container{{
			Name:            "operator",
			Image:           args.Operator.Image,
			Args:            []string{"--config=" + operatorConfigDir + "/" + operatorConfigFile},
			Env:             []corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")},
			Resources:       args.Operator.Resources,
			LivenessProbe:   httpProbe("/healthz", "health"),
			ReadinessProbe:  httpProbe("/readyz", "health"),
			SecurityContext: restrictedContainer(),
			Ports: []corev1.ContainerPort{
				{Name: "metrics", Protocol: corev1.ProtocolTCP, ContainerPort: metricsPort},
				{Name: "health", Protocol: corev1.ProtocolTCP, ContainerPort: healthPort},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: operatorConfigDir, ReadOnly: true}},
		}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configName}},
		}}},
	}
	args.Operator.ZooKeeper.mountSecrets(&pod)
	return pod
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
	}}
}
