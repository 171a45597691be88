//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

// useTokens sees that a lease service of a tenant with auth.tokenReview takes the ServiceAccount tokens of its namespace in
// place of a certificate, knows whose they are, and takes no others.
func (j *mainJob) useTokens(t *testing.T, key types.NamespacedName, endpoint string) {
	t.Helper()
	var secret corev1.Secret
	require.NoError(t, j.cluster.client.Get(t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-client-tls"}, &secret))
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(secret.Data["ca.crt"]))
	leases := dialLeases(t, j.cluster, endpoint, credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: authorities, ServerName: key.Name + "." + key.Namespace + ".svc",
	}))
	with := func(namespace, audience string) error {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
		require.NoError(t, j.cluster.client.SubResource("token").Create(t.Context(), account, request))
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+request.Status.Token)
		_, err := leases.acquire(ctx, "tokens/one", "by-token", 30*time.Second)
		return err
	}
	const audience = "lease.dist.system"
	require.NoError(t, with(key.Namespace, audience))
	held, err := leases.Get(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer none"), &leasev1.GetRequest{Name: "tokens/one"})
	require.Equal(t, codes.Unauthenticated, status.Code(err), "a token that is none: %v, %v", held, err)
	require.Equal(t, codes.Unauthenticated, status.Code(with(key.Namespace, "https://kubernetes.default.svc")), "a token for somebody else")
	require.Equal(t, codes.PermissionDenied, status.Code(with("kube-system", audience)), "a token of another namespace")
	_, err = leases.acquire(t.Context(), "tokens/one", "nobody", time.Second)
	require.Equal(t, codes.Unauthenticated, status.Code(err), "without token and certificate")
}
