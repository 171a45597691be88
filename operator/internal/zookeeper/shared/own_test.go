package shared

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// What can be read of the operator's own target is there whatever else cannot, and each change is noticed once.
func TestOwn(t *testing.T) {
	connect, err := zktypes.ParseConnectString("zk:2181")
	require.NoError(t, err)
	var (
		credential       = zookeeper.Credential{User: "u", Password: "p"}
		tls              = &zookeeper.TLS{CA: []byte("1")}
		noUser, noFolder = errors.New("no user"), errors.New("no folder")

		credentialFault, tlsFault error
	)
	own := NewOwn(connect, Reader{
		Credential: func() (zookeeper.Credential, error) { return credential, credentialFault },
		TLS:        func() (*zookeeper.TLS, error) { return tls, tlsFault },
	})
	target, err := own.Target()
	require.ErrorIs(t, err, ErrCredential)
	require.ErrorIs(t, err, ErrTLS)
	require.Equal(t, zookeeper.Target{Connect: connect, Own: true}, target)

	expect := func(want zookeeper.Target, faults ...error) {
		t.Helper()
		require.True(t, own.look())
		require.False(t, own.look(), "the same again")
		want.Connect, want.Own = connect, true
		got, err := own.Target()
		require.Equal(t, want, got)
		for _, fault := range []error{ErrCredential, ErrTLS, noUser, noFolder} {
			expected := false
			for _, each := range faults {
				expected = expected || errors.Is(each, fault)
			}
			require.Equal(t, expected, errors.Is(err, fault), "%v: %v", fault, err)
		}
	}
	expect(zookeeper.Target{Credential: credential, TLS: tls})
	tls = &zookeeper.TLS{CA: []byte("2")}
	expect(zookeeper.Target{Credential: credential, TLS: tls})
	tlsFault = noFolder
	expect(zookeeper.Target{Credential: credential}, ErrTLS, noFolder)
	credentialFault = noUser
	expect(zookeeper.Target{}, ErrCredential, noUser, ErrTLS, noFolder)
	tlsFault = nil
	expect(zookeeper.Target{TLS: tls}, ErrCredential, noUser)
	credentialFault, tls = nil, nil
	expect(zookeeper.Target{Credential: credential})
}

// A mounted Secret is replaced under a reader, who may see files that do not belong together. That says nothing.
func TestOwnReadsTwiceWhatDoesNotFitTogether(t *testing.T) {
	reads := 0
	own := NewOwn(zktypes.ConnectString{}, Reader{
		Credential: func() (zookeeper.Credential, error) { return zookeeper.Credential{}, nil },
		TLS: func() (*zookeeper.TLS, error) {
			if reads++; reads == 1 {
				return nil, errors.New("the key is another's")
			}
			return &zookeeper.TLS{}, nil
		},
	})
	require.True(t, own.look())
	_, err := own.Target()
	require.NoError(t, err)
}

// Without a Reader of TLS settings it is plain TCP.
func TestOwnByPlainTCP(t *testing.T) {
	own := NewOwn(zktypes.ConnectString{}, Reader{Credential: func() (zookeeper.Credential, error) { return zookeeper.Credential{}, nil }})
	own.look()
	target, err := own.Target()
	require.NoError(t, err)
	require.Nil(t, target.TLS)
}
