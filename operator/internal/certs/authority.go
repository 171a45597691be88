// Package certs decides on and issues the certificates of one owner, such as a LeaseService: an authority that trusts
// nobody else's, a bundle of its certificates, and leaf certificates. It does no I/O and reads no clock; only the keys of
// leaf certificates are random.
package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	// SeedSize is the number of bytes of a seed.
	SeedSize = 32
	// Period is how long one key of an authority signs. Its certificate is valid for a period before and after as
	// well, so that whoever has not read the bundle anew for a whole period still trusts what is issued.
	Period = 365 * 24 * time.Hour
	// MaxLifetime is the most that a leaf certificate may live: one that is issued at the end of a period ends
	// before the authority's certificate does.
	MaxLifetime = Period / 2
)

// Authority issues certificates for one owner.
//
// Its keys are derived from a seed and the owner, and so are stored nowhere: what there is to guard, to back up and to
// clean up is one seed, however many owners there are. Owners share no key, and none says anything about another.
// An Authority is safe for concurrent use.
type Authority struct {
	owner string
	seeds [][]byte
	shift int64 // seconds by which the owner's periods begin later than others', so that not all rotate at once

	mu      sync.Mutex
	present *present
}

// present is what holds for one period.
type present struct {
	period int64
	bundle []byte
	issuer *signer
}

// NewAuthority makes the authority of an owner, named by something that is never used again (a UID). The first seed
// signs. What was issued from the others is still trusted. The error names a seed that has not SeedSize bytes.
func NewAuthority(owner string, seeds ...[]byte) (*Authority, error) {
	if len(seeds) == 0 {
		return nil, errors.New("an authority needs a seed")
	}
	for i, seed := range seeds {
		if len(seed) != SeedSize {
			return nil, fmt.Errorf("seed %d has %d bytes; %d are needed", i+1, len(seed), SeedSize)
		}
	}
	sum := sha256.Sum256([]byte(owner))
	shift := binary.BigEndian.Uint64(sum[:8]) % uint64(Period/time.Second)
	return &Authority{owner: owner, seeds: seeds, shift: int64(shift)}, nil
}

// Bundle returns the certificates to trust, as PEM: of the present period, the one before and the one after, for each
// seed. It is the same text for a whole period.
func (a *Authority) Bundle(now time.Time) ([]byte, error) {
	present, err := a.at(now)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(present.bundle), nil
}

// at returns what holds now. It is kept, since every pass over the owner asks for it.
func (a *Authority) at(now time.Time) (*present, error) {
	period := a.period(now)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.present != nil && a.present.period == period {
		return a.present, nil
	}
	made := &present{period: period}
	var bundle bytes.Buffer
	for i, seed := range a.seeds {
		for of := period - 1; of <= period+1; of++ {
			signer, err := a.signer(seed, of)
			if err != nil {
				return nil, err
			}
			if err := pem.Encode(&bundle, &pem.Block{Type: pemCertificate, Bytes: signer.cert.Raw}); err != nil {
				return nil, err
			}
			if i == 0 && of == period {
				made.issuer = signer
			}
		}
	}
	made.bundle = bundle.Bytes()
	a.present = made
	return made, nil
}

// BundleEnds is when Bundle changes.
func (a *Authority) BundleEnds(now time.Time) time.Time { return a.start(a.period(now) + 1) }

func (a *Authority) period(now time.Time) int64 {
	return (now.Unix() - a.shift) / int64(Period/time.Second)
}

func (a *Authority) start(period int64) time.Time {
	return time.Unix(period*int64(Period/time.Second)+a.shift, 0).UTC()
}

// signer is the key of one period, with its certificate.
type signer struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// signer derives a key and its certificate. Both are always the same: the signature is the deterministic one of RFC 6979.
func (a *Authority) signer(seed []byte, period int64) (*signer, error) {
	key, err := a.derive(seed, period)
	if err != nil {
		return nil, err
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode the authority's key: %w", err)
	}
	id := sha256.Sum256(point)
	template := &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(id[:16]),
		Subject:               pkix.Name{CommonName: fmt.Sprintf("holdfast authority %s %d", a.owner, period)},
		NotBefore:             a.start(period - 1),
		NotAfter:              a.start(period + 2),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
		SubjectKeyId:          id[:20],
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	return &signer{key: key, cert: cert}, nil
}

// derive draws candidates until one is a key of the curve, which the first is but for one case in 2^32.
func (a *Authority) derive(seed []byte, period int64) (*ecdsa.PrivateKey, error) {
	for attempt := range 8 {
		info := fmt.Sprintf("holdfast authority v1 %q %d %d", a.owner, period, attempt)
		candidate, err := hkdf.Key(sha256.New, seed, nil, info, SeedSize)
		if err != nil {
			return nil, fmt.Errorf("derive the authority's key: %w", err)
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), candidate); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("derive the authority's key: no candidate is a key")
}
