package leaseservice_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	desired "github.com/holdfast-io/holdfast/operator/internal/desired/leaseservice"
)

func TestWhoMayCall(t *testing.T) {
	const operator, client = "holdfast://team-a/locks/operator", "holdfast://team-a/locks/client"
	for _, test := range []struct {
		name    string
		mode    v1alpha1.TLSMode
		auth    *v1alpha1.LeaseServiceAuth
		allowed []string
		review  bool
	}{
		{"everybody whom TLS lets in", v1alpha1.TLSManaged, nil, nil, false},
		{
			"tokens of the own namespace, unless it says otherwise", v1alpha1.TLSManaged, &v1alpha1.LeaseServiceAuth{TokenReview: true},
			[]string{client, operator, "system:serviceaccount:team-a:*"},
			true,
		},
		{
			"a list, and the operator", v1alpha1.TLSManaged,
			&v1alpha1.LeaseServiceAuth{TokenReview: true, AllowedIdentities: []string{"system:serviceaccount:team-b:worker"}},
			[]string{operator, "system:serviceaccount:team-b:worker"},
			true,
		},
		{
			"a list that names the operator", v1alpha1.TLSManaged, &v1alpha1.LeaseServiceAuth{AllowedIdentities: []string{operator}},
			[]string{operator},
			false,
		},
		{
			"with a certificate of somebody else the operator is a replica", v1alpha1.TLSProvided,
			&v1alpha1.LeaseServiceAuth{AllowedIdentities: []string{"b", "a"}},
			[]string{"a", "b"},
			false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			set, err := desired.StatefulSet(known(func(ls *v1alpha1.LeaseService) {
				ls.Spec.TLS = &v1alpha1.LeaseServiceTLS{Mode: test.mode}
				if test.mode == v1alpha1.TLSProvided {
					ls.Spec.TLS.SecretRef = &v1alpha1.LeaseServiceSecretReference{Name: "own"}
				}
				ls.Spec.Auth = test.auth
			}), settings, nil)
			require.NoError(t, err)
			pod := set.Spec.Template.Spec
			var allowed []string
			review := false
			for _, arg := range pod.Containers[0].Args {
				if list, ok := strings.CutPrefix(arg, "--allowed-identities="); ok {
					allowed = strings.Split(list, ",")
				}
				review = review || arg == "--token-review"
			}
			require.Equal(t, test.allowed, allowed)
			require.Equal(t, test.review, review)
			require.Equal(t, test.review, *pod.AutomountServiceAccountToken, "a token is there for those who ask with it alone")
		})
	}
}

func TestAuthNeedsTLS(t *testing.T) {
	ls := known(func(ls *v1alpha1.LeaseService) {
		ls.Spec.TLS, ls.Spec.Auth = nil, &v1alpha1.LeaseServiceAuth{TokenReview: true}
	})
	_, err := desired.Children(ls, desired.Settings{DefaultImage: "a"}, certificates, nil)
	require.ErrorIs(t, err, desired.ErrAuthWithoutTLS)
	_, err = desired.Children(ls, settings, certificates, nil)
	require.NoError(t, err, "the operator issues certificates")
}

func TestServerNamesAreOfTheCertificate(t *testing.T) {
	leaf := desired.ServerLeaf(known(func(ls *v1alpha1.LeaseService) {
		ls.Spec.TLS = &v1alpha1.LeaseServiceTLS{ServerNames: []string{"locks.example.com", "192.0.2.7", "*.locks.example.com"}}
	}))
	require.Subset(t, leaf.DNSNames, []string{"locks.team-a.svc", "locks.example.com", "*.locks.example.com"})
	require.NotContains(t, leaf.DNSNames, "192.0.2.7")
	require.Equal(t, "192.0.2.7", leaf.IPs[len(leaf.IPs)-1].String())
}
