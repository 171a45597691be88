package tokenreview_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/tokenreview"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const (
	audience = "lease.dist.system"
	tenant   = "system:serviceaccount:default:tenant"
)

var environment *testkit.Environment

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &environment)) }

// account makes a ServiceAccount if it is not there, and returns a token of it for an audience; "" is the API server's own.
func account(t *testing.T, client kubernetes.Interface, name, audience string) string {
	t.Helper()
	ctx := testkit.Context(t)
	accounts := client.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Get(ctx, name, metav1.GetOptions{}); err != nil {
		_, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	got, err := accounts.CreateToken(ctx, name, request, metav1.CreateOptions{})
	require.NoError(t, err)
	return got.Status.Token
}

// config is what a pod of the lease service has: an account that may ask for reviews.
func config(t *testing.T) (tokenreview.Config, kubernetes.Interface) {
	t.Helper()
	client, err := kubernetes.NewForConfig(environment.Config)
	require.NoError(t, err)
	token := account(t, client, "lease-service", "")
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "lease-service-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "lease-service"}},
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(testkit.Context(t), binding, metav1.CreateOptions{})
	require.NoError(t, err)
	return tokenreview.Config{
		Server: environment.Config.Host, CAFile: write(t, "ca.crt", string(environment.Config.CAData)), TokenFile: write(t, "token", token+"\n"),
		Audience: audience,
	}, client
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestReview(t *testing.T) {
	config, client := config(t)
	server, err := url.Parse(config.Server)
	require.NoError(t, err)
	link := leasetest.NewLink(t, server.Host)
	config.Server = "https://" + link.Address
	var ahead atomic.Int64
	reviewer := tokenreview.New(config, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	ctx := testkit.Context(t)
	token := account(t, client, "tenant", audience)
	// The first review may come before the API server knows the new role.
	require.Eventually(t, func() bool {
		_, err = reviewer.Review(ctx, token)
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "%v", err)
	identity, err := reviewer.Review(ctx, token)
	require.NoError(t, err)
	require.Equal(t, tenant, identity)
	for what, refused := range map[string]string{
		"for the API server": account(t, client, "tenant", ""), "for another audience": account(t, client, "tenant", "other"), "made up": "a.b.c",
	} {
		_, err = reviewer.Review(ctx, refused)
		require.ErrorIs(t, err, tokenreview.ErrRefused, "a token %s", what)
	}

	t.Run("an answer counts while the API server is down, but not for ever", func(t *testing.T) {
		unseen := account(t, client, "tenant", audience)
		link.Cut()
		ahead.Store(int64(30 * time.Second))
		_, err := reviewer.Review(ctx, token)
		require.NoError(t, err)
		ahead.Store(int64(10 * time.Minute))
		identity, err := reviewer.Review(ctx, token)
		require.NoError(t, err)
		require.Equal(t, tenant, identity)
		_, err = reviewer.Review(ctx, unseen)
		require.Error(t, err)
		require.NotErrorIs(t, err, tokenreview.ErrRefused)
		ahead.Store(int64(61 * time.Minute))
		_, err = reviewer.Review(ctx, token)
		require.Error(t, err)
	})
	t.Run("an account that is gone is refused", func(t *testing.T) {
		link.Restore()
		ahead.Store(0) // so that the token has not expired
		require.NoError(t, client.CoreV1().ServiceAccounts("default").Delete(ctx, "tenant", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool {
			ahead.Add(int64(2 * time.Minute))
			_, err = reviewer.Review(ctx, token)
			return err != nil
		}, 30*time.Second, 100*time.Millisecond)
		require.ErrorIs(t, err, tokenreview.ErrRefused)
	})
}

func TestServiceKnowsCallersByTheirTokens(t *testing.T) {
	config, client := config(t)
	etcd, _ := leasetest.Etcd(t)
	authority := leasetest.NewAuthority(t)
	files := authority.Issue(t, t.TempDir(), "leases.example")
	addresses := make([]string, 2)
	for i := range addresses {
		opts := leasetest.Options(fmt.Sprint("r", i))
		opts.EtcdEndpoints, opts.TLS, opts.TokenReview = []string{etcd.Endpoint()}, files, &config
		opts.AllowedIdentities = []string{"system:serviceaccount:default:ten*", "tenant.example"}
		addresses[i] = leasetest.Start(t, opts).Address
	}
	anonymous := leasetls.ClientCredentials(leasetls.Files{CA: files.CA})
	service := func(name, audience string) leasev1.LeaseServiceClient {
		token := write(t, "token", account(t, client, name, audience)+"\n")
		c, err := lease.Dial(addresses[0], grpc.WithTransportCredentials(anonymous), grpc.WithPerRPCCredentials(leasetls.TokenFile(token)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c.Service()
	}
	ctx := testkit.Context(t)
	allowed := service("tenant", audience)
	var err error
	for deadline := time.Now().Add(30 * time.Second); ; { // the first review may come before the API server knows the new role
		if _, err = allowed.Get(ctx, &leasev1.GetRequest{Name: "n"}); err == nil || time.Now().After(deadline) {
			break
		}
	}
	require.NoError(t, err)

	identityOf := func(name string) string {
		got, err := allowed.Get(ctx, &leasev1.GetRequest{Name: name})
		require.NoError(t, err)
		require.Len(t, got.GetLease().GetHolds(), 1)
		return got.GetLease().GetHolds()[0].GetIdentity()
	}
	direct := leasev1.NewLeaseServiceClient(leasetest.DialWith(t, addresses[0], anonymous))
	as := func(token string, more ...string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, append(more, "authorization", "Bearer "+token)...)
	}
	token := account(t, client, "tenant", audience)
	forwarded := 0
	for i := range 10 { // some of them are passed on
		name := fmt.Sprintf("n%d", i)
		var header metadata.MD
		_, err := direct.Acquire(as(token), &leasev1.AcquireRequest{Name: name}, grpc.Header(&header))
		require.NoError(t, err)
		forwarded += len(header.Get("holdfast-owner"))
		require.Equal(t, tenant, identityOf(name))
	}
	require.Positive(t, forwarded)
	spoofed := "" // one that the replica serves, since it does not pass on what says that it was passed on
	for i := 0; spoofed == ""; i++ {
		var header metadata.MD
		candidate := fmt.Sprint("spoofed", i)
		_, err = direct.Get(as(token), &leasev1.GetRequest{Name: candidate}, grpc.Header(&header))
		require.NoError(t, err)
		if len(header.Get("holdfast-owner")) == 0 {
			spoofed = candidate
		}
	}
	_, err = direct.Acquire(as(token, "holdfast-forwarded", "1", "holdfast-identity-bin", "admin"), &leasev1.AcquireRequest{Name: spoofed})
	require.NoError(t, err)
	require.Equal(t, tenant, identityOf(spoofed))
	session, err := allowed.Session(ctx)
	require.NoError(t, err)
	require.NoError(t, session.Send(&leasev1.SessionRequest{Id: 1, Message: &leasev1.SessionRequest_Open{Open: &leasev1.SessionOpen{}}}))
	_, err = session.Recv()
	require.NoError(t, err)
	require.NoError(t, session.CloseSend())

	withCert := func(name string) leasev1.LeaseServiceClient {
		return leasev1.NewLeaseServiceClient(leasetest.DialWith(t, addresses[0], leasetls.ClientCredentials(authority.Issue(t, t.TempDir(), name))))
	}
	_, err = withCert("tenant.example").Get(ctx, &leasev1.GetRequest{Name: "n"})
	require.NoError(t, err, "a certificate does as well")
	for what, refused := range map[string]struct {
		service leasev1.LeaseServiceClient
		code    codes.Code
	}{
		"nothing":                        {direct, codes.Unauthenticated},
		"a token for the API server":     {service("tenant", ""), codes.Unauthenticated},
		"an account that is not allowed": {service("other", audience), codes.PermissionDenied},
		"a name that is not allowed":     {withCert("other.example"), codes.PermissionDenied},
	} {
		_, err = refused.service.Get(ctx, &leasev1.GetRequest{Name: "n"})
		require.Equal(t, refused.code, status.Code(err), "with %s: %v", what, err)
		stream, err := refused.service.WatchShardMap(ctx, &leasev1.WatchShardMapRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.Equal(t, refused.code, status.Code(err), "a stream with %s: %v", what, err)
	}
}
