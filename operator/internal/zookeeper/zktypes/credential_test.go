package zktypes_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

func TestReadCredential(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]string
		want   zktypes.Credential
		fault  string
	}{
		"one":                         {values: map[string]string{"username": "u", "password": "p"}, want: zktypes.Credential{User: "u", Password: "p"}},
		"another password":            {values: map[string]string{"username": "u", "password": "p", "previous-password": "q"}, want: zktypes.Credential{User: "u", Password: "p", PreviousUser: "u", PreviousPassword: "q"}},
		"another user":                {values: map[string]string{"username": "u", "password": "p", "previous-username": "v", "previous-password": "p"}, want: zktypes.Credential{User: "u", Password: "p", PreviousUser: "v", PreviousPassword: "p"}},
		"the same":                    {values: map[string]string{"username": "u", "password": "p", "previous-password": "p"}, want: zktypes.Credential{User: "u", Password: "p"}},
		"nothing":                     {fault: "not empty"},
		"no password":                 {values: map[string]string{"username": "u", "previous-password": "p"}, fault: "not empty"},
		"a colon":                     {values: map[string]string{"username": "u:s3cr3t", "password": "p"}, fault: "the username has a colon"},
		"a colon before":              {values: map[string]string{"username": "u", "password": "p", "previous-username": "u:s3cr3t", "previous-password": "p"}, fault: "the previous-username has a colon"},
		"a user without his password": {values: map[string]string{"username": "u", "password": "p", "previous-username": "v"}, fault: "previous-username without"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := zktypes.ReadCredential(func(key string) string { return c.values[key] })
			require.Equal(t, c.want, got)
			if c.fault == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.fault)
			require.NotContains(t, err.Error(), "s3cr3t")
		})
	}
}

func TestIdentitiesOfACredential(t *testing.T) {
	require.Empty(t, zktypes.Credential{}.Identities())
	both := zktypes.Credential{User: "u", Password: "p", PreviousUser: "v", PreviousPassword: "q"}
	require.Equal(t, []zktypes.ACL{{Scheme: "digest", ID: zktypes.DigestID("u", "p")}}, both.Identities())
	before := zktypes.Granting(both.Previous(), zktypes.PermRead)
	require.Equal(t, []zktypes.ACL{{Scheme: "digest", ID: zktypes.DigestID("v", "q"), Perms: zktypes.PermRead}}, before)
	require.Zero(t, both.Previous()[0].Perms)
}
