package acceptance_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
)

// startControllers runs the real kube-controller-manager, with the controllers that a LeaseService depends on.
func startControllers(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["env"] = &clientcmdapi.Cluster{Server: env.Config.Host, CertificateAuthorityData: env.Config.CAData}
	config.AuthInfos["env"] = &clientcmdapi.AuthInfo{ClientCertificateData: env.Config.CertData, ClientKeyData: env.Config.KeyData}
	config.Contexts["env"] = &clientcmdapi.Context{Cluster: "env", AuthInfo: "env"}
	config.CurrentContext = "env"
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	process := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(testkit.Assets), "kube-controller-manager"),
		"--kubeconfig="+kubeconfig, "--controllers=statefulset-controller,garbage-collector-controller,disruption-controller",
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false")
	process.Stdout, process.Stderr = log, log
	process.Cancel = func() error { return process.Process.Signal(os.Interrupt) }
	process.WaitDelay = 10 * time.Second
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Wait() // it was interrupted, and says so
		require.NoError(t, log.Close())
		if t.Failed() {
			content, err := os.ReadFile(log.Name())
			t.Logf("kube-controller-manager (%v):\n%s", err, content[max(0, len(content)-8000):])
		}
	})
}

// kubelet plays the kubelets of one namespace: it runs pods, except those of an image that does not exist, and gives
// each a status server on the loopback. Of the pods of one LeaseService, the one that runs longest leads.
type kubelet struct {
	t  *testing.T
	c  client.WithWatch
	ns string

	mu       sync.Mutex
	pods     map[string]*process // by name
	byIP     map[string]string   // address of the status server by the pod's IP
	started  int
	elected  time.Time // the last election
	finished sync.WaitGroup
}

// process is a running lease service pod.
type process struct {
	leasestatus.UnimplementedLeaseStatusServiceServer
	name    string
	owner   string // its LeaseService
	order   int
	server  *grpc.Server
	mu      sync.Mutex
	status  *leasestatus.GetStatusResponse
	changed chan struct{}
}

func startKubelet(t *testing.T, c client.WithWatch, namespace string) *kubelet {
	t.Helper()
	k := &kubelet{t: t, c: c, ns: namespace, pods: map[string]*process{}, byIP: map[string]string{}}
	pods, err := c.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(namespace))
	require.NoError(t, err)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				k.handle(event.Type, pod)
			}
		}
	}()
	t.Cleanup(func() {
		pods.Stop()
		<-watched // from here on no pod is started
		for _, p := range k.pods {
			p.server.Stop()
		}
		k.finished.Wait()
	})
	return k
}

func (k *kubelet) handle(event watch.EventType, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch running := k.pods[pod.Name]; {
	case event == watch.Deleted && running != nil:
		running.server.Stop()
		delete(k.pods, pod.Name)
		k.elect(running.owner)
	case event == watch.Added && strings.Contains(pod.Spec.Containers[0].Image, "missing"):
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: desired.ContainerName, Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		}}
		k.report(pod, corev1.PodPending, corev1.ConditionFalse)
	case event == watch.Added:
		k.started++
		owner, _ := desired.PodOwner(pod.Labels)
		p := &process{name: pod.Name, owner: owner, order: k.started, server: k.newServer(pod), changed: make(chan struct{})}
		listener, err := (&net.ListenConfig{}).Listen(k.t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			k.t.Errorf("listen: %v", err)
			return
		}
		leasestatus.RegisterLeaseStatusServiceServer(p.server, p)
		k.finished.Go(func() {
			if err := p.server.Serve(listener); err != nil {
				k.t.Errorf("serve: %v", err)
			}
		})
		k.pods[pod.Name] = p
		pod.Status.PodIP = fmt.Sprintf("10.9.%d.%d", k.started/250, k.started%250+1)
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		k.byIP[pod.Status.PodIP] = listener.Addr().String()
		k.elect(owner)
		k.report(pod, corev1.PodRunning, corev1.ConditionTrue)
	}
}

// newServer takes the keepalives of the operator, as the lease service does. A pod that mounts certificates demands one
// too, and reads them anew for each connection.
func (k *kubelet) newServer(pod *corev1.Pod) *grpc.Server {
	options := []grpc.ServerOption{grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second})}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == "tls" {
			name := volume.Secret.SecretName
			options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{
				MinVersion:         tls.VersionTLS13,
				GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.serverTLS(name) },
			})))
		}
	}
	return grpc.NewServer(options...)
}

func (k *kubelet) serverTLS(name string) (*tls.Config, error) {
	secret := &corev1.Secret{}
	if err := k.c.Get(k.t.Context(), client.ObjectKey{Namespace: k.ns, Name: name}, secret); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(secret.Data["ca.crt"])
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"},
		ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}

func (k *kubelet) report(pod *corev1.Pod, phase corev1.PodPhase, ready corev1.ConditionStatus) {
	pod.Status.Phase = phase
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()}}
	if err := k.c.Status().Update(k.t.Context(), pod); client.IgnoreNotFound(err) != nil {
		k.t.Errorf("status of pod %s: %v", pod.Name, err)
	}
}

// elect makes the pod that runs longest the leader, and tells all.
func (k *kubelet) elect(owner string) {
	pods := slices.DeleteFunc(slices.Collect(maps.Values(k.pods)), func(p *process) bool { return p.owner != owner })
	if len(pods) == 0 {
		return
	}
	leader := slices.MinFunc(pods, func(a, b *process) int { return a.order - b.order })
	if !leader.says().GetIsLeader() {
		k.elected = time.Now()
	}
	for _, p := range pods {
		p.say(&leasestatus.GetStatusResponse{
			IsLeader: p == leader, PodName: p.name, Leader: leader.name, Ready: true, ActiveLeases: 1, Version: "test",
		})
	}
}

// election returns when the present leader was elected, and its name.
func (k *kubelet) election() (time.Time, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.says().GetIsLeader() {
			return k.elected, p.name
		}
	}
	return k.elected, ""
}

// dial connects to a pod by its IP.
func (k *kubelet) dial(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	server, ok := k.byIP[host]
	k.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("no pod has the address %s", host)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", server)
}

func (p *process) say(status *leasestatus.GetStatusResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *process) says() *leasestatus.GetStatusResponse {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *process) WatchStatus(_ *leasestatus.WatchStatusRequest, stream grpc.ServerStreamingServer[leasestatus.WatchStatusResponse]) error {
	for {
		p.mu.Lock()
		status, changed := p.status, p.changed
		p.mu.Unlock()
		if err := stream.Send(&leasestatus.WatchStatusResponse{Status: status}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}
