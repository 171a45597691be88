package acceptance_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/crds"
	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/certs"
	"github.com/holdfast-io/holdfast/operator/internal/certs/seed"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
)

// keys reads the certificate that a Secret has.
func (s *stage) keys(name string) certs.Keys {
	s.t.Helper()
	secret := &corev1.Secret{}
	require.NoError(s.t, s.child(secret, name))
	return desired.KeysOf(secret.Data)
}

// ask reads the status of a pod with the certificate, and returns the code of the answer.
func (s *stage) ask(pod string, keys certs.Keys, serverName string) codes.Code {
	s.t.Helper()
	config, err := keys.ClientTLS(serverName)
	require.NoError(s.t, err)
	p := &corev1.Pod{}
	require.NoError(s.t, s.child(p, pod))
	conn, err := grpc.NewClient("passthrough:///"+p.Status.PodIP+":7400", grpc.WithTransportCredentials(credentials.NewTLS(config)), grpc.WithContextDialer(s.kubelet.dial))
	require.NoError(s.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	stream, err := leasestatus.NewLeaseStatusServiceClient(conn).WatchStatus(ctx, &leasestatus.WatchStatusRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	return status.Code(err)
}

func TestCertificates(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{"locks", "other"} {
		require.NoError(t, s.c.Create(t.Context(), minimal(t, s.ns, name, `{`+etcd+`}`)))
		ls := s.until(name, "Ready", ready)
		require.Equal(t, name+"-client-tls", ls.Status.ClientSecret)
		require.NotEmpty(t, ls.Status.Leader, "the operator hears a pod only with a certificate of its own")
	}
	ours, theirs := s.keys("locks-client-tls"), s.keys("other-client-tls")
	s.run("the tenant's client is served under every name", func(t *testing.T) {
		for _, name := range []string{
			"locks." + s.ns + ".svc", "locks", "locks." + s.ns + ".svc.cluster.local", "locks-0.locks-peers." + s.ns + ".svc", "localhost", "127.0.0.1",
		} {
			require.Equal(t, codes.OK, s.ask("locks-0", ours, name), name)
		}
	})
	s.run("the certificate of another LeaseService is refused", func(t *testing.T) {
		trusting := certs.Keys{CA: ours.CA, Cert: theirs.Cert, Key: theirs.Key} // it accepts the server, and is not accepted
		require.Equal(t, codes.Unavailable, s.ask("locks-0", trusting, "locks"))
	})
	s.run("a client does not take another server for its own", func(t *testing.T) {
		require.Equal(t, codes.Unavailable, s.ask("other-0", ours, "locks"))
	})
	s.run("the seed stays in the operator's namespace", func(t *testing.T) {
		require.True(t, apierrors.IsNotFound(s.child(&corev1.Secret{}, crds.SeedSecret)))
		seed := &corev1.Secret{}
		require.NoError(t, s.c.Get(t.Context(), client.ObjectKey{Namespace: s.own, Name: crds.SeedSecret}, seed))
		require.Len(t, seed.Data["seed"], certs.SeedSize)
	})
	s.run("a new operator issues the same authorities", func(t *testing.T) {
		s.stop()
		s.startOperator()
		s.rests(4 * time.Second)
		require.True(t, ours.Equal(s.keys("locks-client-tls")))
	})
	s.run("a provided certificate", s.provided)
	s.run("none at all", func(t *testing.T) {
		s.edit("other", func(spec *v1alpha1.LeaseServiceSpec) {
			spec.TLS = &v1alpha1.LeaseServiceTLS{Mode: v1alpha1.TLSDisabled}
		})
		require.True(t, poll(func() bool { return apierrors.IsNotFound(s.child(&corev1.Secret{}, "other-server-tls")) }))
		ls := s.until("other", "Ready without TLS", func(ls *v1alpha1.LeaseService) bool {
			return ready(ls) && ls.Status.CurrentRevision == ls.Status.UpdateRevision && ls.Status.Leader != ""
		})
		require.Empty(t, ls.Status.ClientSecret)
	})
}

// provided moves a LeaseService to a Secret of the tenant's, which is missing at first.
func (s *stage) provided(t *testing.T) {
	s.edit("locks", func(spec *v1alpha1.LeaseServiceSpec) {
		spec.TLS = &v1alpha1.LeaseServiceTLS{Mode: v1alpha1.TLSProvided, SecretRef: &v1alpha1.LeaseServiceSecretReference{Name: "own-tls"}}
	})
	ls := s.until("locks", "Stalled", func(ls *v1alpha1.LeaseService) bool { return condition(ls, "Stalled").Status == metav1.ConditionTrue })
	require.Equal(t, v1alpha1.ReasonSourceMissing, condition(ls, "Stalled").Reason)
	require.Equal(t, "spec.tls.secretRef: there is no Secret own-tls with the key ca.crt", condition(ls, "Stalled").Message)

	authority, err := certs.NewAuthority("the tenant's own", make([]byte, certs.SeedSize))
	require.NoError(t, err)
	leaf := desired.ServerLeaf(ls)
	leaf.Lifetime = time.Hour
	own, err := authority.Issue(leaf, time.Now())
	require.NoError(t, err)
	require.NoError(t, s.c.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "own-tls"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"ca.crt": own.CA, "tls.crt": own.Cert, "tls.key": own.Key},
	}))
	s.until("locks", "Ready with the provided certificate", func(ls *v1alpha1.LeaseService) bool {
		return ready(ls) && ls.Status.CurrentRevision == ls.Status.UpdateRevision && ls.Status.Leader != ""
	})
	require.Equal(t, codes.OK, s.ask("locks-0", own, "locks"))
	require.True(t, poll(func() bool { return apierrors.IsNotFound(s.child(&corev1.Secret{}, "locks-client-tls")) }))
}

// Certificates that live for seconds are renewed again and again, without a pod or a connection being lost.
func TestCertificatesRotate(t *testing.T) {
	s := newStage(t, func(s *stage) { s.lifetime = 9 * time.Second })
	require.NoError(t, s.c.Create(t.Context(), minimal(t, s.ns, "locks", `{`+etcd+`}`)))
	s.until("locks", "Ready", ready)
	pod := &corev1.Pod{}
	require.NoError(t, s.child(pod, "locks-0"))
	for range 2 {
		server, client := s.keys("locks-server-tls"), s.keys("locks-client-tls")
		require.True(t, poll(func() bool {
			return string(s.keys("locks-server-tls").Cert) != string(server.Cert) && string(s.keys("locks-client-tls").Cert) != string(client.Cert)
		}), "no new certificates")
		require.Equal(t, codes.OK, s.ask("locks-0", client, "locks"), "the certificate before is good for a third of its life")
		require.Equal(t, codes.OK, s.ask("locks-0", s.keys("locks-client-tls"), "locks"))
	}
	again := &corev1.Pod{}
	require.NoError(t, s.child(again, "locks-0"))
	require.Equal(t, pod.UID, again.UID, "rotation restarts nothing")
	require.True(t, ready(s.get("locks")))
}

// Several operators start at once: one of them makes the seed, and all use it.
func TestOneSeedForAll(t *testing.T) {
	c := newClient(t)
	name := types.NamespacedName{Namespace: newNamespace(t, c), Name: crds.SeedSecret}
	var group errgroup.Group
	found := make([]seed.Seeds, 8)
	for i := range found {
		group.Go(func() (err error) {
			found[i], err = seed.Load(testkit.Context(t), c, c, name)
			return err
		})
	}
	require.NoError(t, group.Wait())
	for _, seeds := range found {
		require.Equal(t, found[0], seeds)
		require.Len(t, seeds.All, 1)
	}

	secret := &corev1.Secret{}
	require.NoError(t, c.Get(testkit.Context(t), name, secret))
	secret.Data[seed.PreviousKey], secret.Data[seed.Key] = secret.Data[seed.Key], []byte("short")
	require.NoError(t, c.Update(testkit.Context(t), secret))
	_, err := seed.Load(testkit.Context(t), c, c, name)
	require.ErrorContains(t, err, `key "seed" has 5 bytes, and 32 are needed`)
	secret.Data[seed.Key] = bytes.Repeat([]byte{1}, certs.SeedSize)
	require.NoError(t, c.Update(testkit.Context(t), secret))
	seeds, err := seed.Load(testkit.Context(t), c, c, name)
	require.NoError(t, err)
	require.Equal(t, seed.Seeds{All: [][]byte{secret.Data[seed.Key], found[0].All[0]}, Installation: string(secret.UID)}, seeds)
}
