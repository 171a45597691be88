package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/operator/internal/certs"
)

var (
	seed  = bytes.Repeat([]byte{1}, certs.SeedSize)
	other = bytes.Repeat([]byte{2}, certs.SeedSize)
	start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
)

func authority(t require.TestingT, owner string, seeds ...[]byte) *certs.Authority {
	a, err := certs.NewAuthority(owner, seeds...)
	require.NoError(t, err)
	return a
}

func leaf(name string) certs.Leaf {
	return certs.Leaf{
		Identity: &url.URL{Scheme: "holdfast", Host: "team-a", Path: "/locks/" + name},
		DNSNames: []string{"locks.team-a.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Lifetime: 90 * 24 * time.Hour,
	}
}

func issue(t require.TestingT, a *certs.Authority, name string, now time.Time) certs.Keys {
	keys, err := a.Issue(leaf(name), now)
	require.NoError(t, err)
	return keys
}

// verify tells whether somebody who trusts the bundle takes the certificate at that time.
func verify(bundle, cert []byte, now time.Time) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		panic("no certificate in the bundle")
	}
	pair, err := tls.X509KeyPair(cert, cert[bytes.Index(cert, []byte("-----BEGIN PRIVATE KEY")):])
	if err != nil {
		return err
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, DNSName: "locks.team-a.svc"})
	return err
}

func text(keys certs.Keys) []byte { return append(bytes.Clone(keys.Cert), keys.Key...) }

func TestAuthorityIsTheSameInEveryProcess(t *testing.T) {
	first, err := authority(t, "uid-1", seed).Bundle(start)
	require.NoError(t, err)
	second, err := authority(t, "uid-1", seed).Bundle(start.Add(time.Second))
	require.NoError(t, err)
	require.Equal(t, string(first), string(second))
}

func TestOwnersDoNotTrustEachOther(t *testing.T) {
	a, b := authority(t, "uid-a", seed), authority(t, "uid-b", seed)
	mine := issue(t, a, "client", start)
	require.NoError(t, verify(mine.CA, text(mine), start))
	for name, stranger := range map[string]*certs.Authority{"another owner": b, "another seed": authority(t, "uid-a", other)} {
		bundle, err := stranger.Bundle(start)
		require.NoError(t, err)
		require.Error(t, verify(bundle, text(mine), start), name)
	}
}

func TestRenewKeepsWhatIsGood(t *testing.T) {
	a := authority(t, "uid", seed)
	keys, next, err := a.Renew(certs.Keys{}, leaf("server"), start)
	require.NoError(t, err)
	require.NoError(t, verify(keys.CA, text(keys), start))
	require.WithinDuration(t, start.Add(60*24*time.Hour), next, time.Hour)

	same, _, err := a.Renew(keys, leaf("server"), next.Add(-time.Second))
	require.NoError(t, err)
	require.True(t, keys.Equal(same), "nothing changes before two thirds of the life")

	renewed, _, err := a.Renew(keys, leaf("server"), next)
	require.NoError(t, err)
	require.NotEqual(t, string(keys.Cert), string(renewed.Cert))
	require.NotEqual(t, string(keys.Key), string(renewed.Key))
	require.NoError(t, verify(keys.CA, text(renewed), next), "who has the old bundle trusts the new certificate")
}

func TestRenewReplacesWhatIsNot(t *testing.T) {
	a := authority(t, "uid", seed)
	good := issue(t, a, "server", start)
	elsewhere := leaf("server")
	elsewhere.DNSNames = []string{"locks.team-a.svc", "locks"}
	for name, test := range map[string]struct {
		have certs.Keys
		leaf certs.Leaf
	}{
		"garbage":          {certs.Keys{CA: good.CA, Cert: []byte("x"), Key: []byte("y")}, leaf("server")},
		"another key":      {certs.Keys{CA: good.CA, Cert: good.Cert, Key: issue(t, a, "server", start).Key}, leaf("server")},
		"another identity": {good, leaf("client")},
		"other names":      {good, elsewhere},
		"another owner":    {issue(t, authority(t, "uid-b", seed), "server", start), leaf("server")},
	} {
		t.Run(name, func(t *testing.T) {
			keys, _, err := a.Renew(test.have, test.leaf, start)
			require.NoError(t, err)
			require.NotEqual(t, string(test.have.Cert), string(keys.Cert))
			require.NoError(t, verify(keys.CA, text(keys), start))
		})
	}
	t.Run("a spoiled bundle alone", func(t *testing.T) {
		keys, _, err := a.Renew(certs.Keys{CA: []byte("x"), Cert: good.Cert, Key: good.Key}, leaf("server"), start)
		require.NoError(t, err)
		require.True(t, good.Equal(keys))
	})
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }

// Whoever reads the files at least once a period is never refused, whichever of the two sides is behind.
func TestRotationOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := authority(t, rapid.String().Draw(t, "owner"), seed)
		read := start.Add(time.Duration(rapid.Int64Range(0, seconds(3*certs.Period)).Draw(t, "read")) * time.Second)
		lag := time.Duration(rapid.Int64Range(0, seconds(certs.Period)-1).Draw(t, "lag")) * time.Second
		bundle, err := a.Bundle(read)
		require.NoError(t, err)
		now := read.Add(lag)
		require.NoError(t, verify(bundle, text(issue(t, a, "server", now)), now), "an old bundle and a new certificate")

		age := time.Duration(rapid.Int64Range(0, seconds(90*24*time.Hour)).Draw(t, "age")) * time.Second
		old := issue(t, a, "client", now)
		later, err := a.Bundle(now.Add(age))
		require.NoError(t, err)
		require.NoError(t, verify(later, text(old), now.Add(age)), "a new bundle and an old certificate")
	})
}

func TestSeedRotation(t *testing.T) {
	before, both, after := authority(t, "uid", seed), authority(t, "uid", other, seed), authority(t, "uid", other)
	old := issue(t, before, "server", start)
	during, _, err := both.Renew(old, leaf("server"), start)
	require.NoError(t, err)
	require.Equal(t, string(old.Cert), string(during.Cert), "nobody trusts the new seed yet")
	end, _, err := after.Renew(during, leaf("server"), start)
	require.NoError(t, err)
	require.NotEqual(t, string(old.Cert), string(end.Cert))
	require.NoError(t, verify(during.CA, text(end), start), "who has both bundles trusts the new certificate")
	require.Error(t, verify(end.CA, text(old), start), "the old seed is worth nothing any more")
}

func TestRefusals(t *testing.T) {
	_, err := certs.NewAuthority("uid")
	require.ErrorContains(t, err, "needs a seed")
	_, err = certs.NewAuthority("uid", seed, []byte("short"))
	require.ErrorContains(t, err, "seed 2 has 5 bytes")
	long := leaf("server")
	long.Lifetime = certs.MaxLifetime + 1
	_, err = authority(t, "uid", seed).Issue(long, start)
	require.ErrorContains(t, err, "lifetime of at most")
}
