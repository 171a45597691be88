package shared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// ownInterval is how often the files of the operator's own target are looked at. They are a few small local ones,
// which the kubelet brings in at its leisure; nothing else tells of them on every kind of volume.
const ownInterval = 2 * time.Second

// What may be wrong with the operator's own target.
var (
	// ErrCredential says that the operator's own credential cannot be read.
	ErrCredential = errors.New("the operator's own ZooKeeper credential cannot be read")
	// ErrTLS says that the files of the operator's own TLS cannot be read.
	ErrTLS = errors.New("the files of the operator's own ZooKeeper TLS cannot be read")
)

// Own is the operator's own target: the ensemble of every object that names none, with the credential and the TLS settings as they
// are now. It is safe for concurrent use.
type Own struct {
	read Reader

	mu                        sync.Mutex
	target                    zookeeper.Target
	credentialFault, tlsFault error
	listeners                 []func()
}

// Reader reads what makes the operator's own target.
type Reader struct {
	// Credential reads the credential.
	Credential func() (zookeeper.Credential, error)
	// TLS reads the TLS settings, of which there are none for plain TCP. Nil: plain TCP.
	TLS func() (*zookeeper.TLS, error)
}

// NewOwn makes it. What the Reader reads is read for the first time when the pool's component is set up.
func NewOwn(connect zktypes.ConnectString, read Reader) *Own {
	if read.TLS == nil {
		read.TLS = func() (*zookeeper.TLS, error) { return nil, nil }
	}
	return &Own{
		read: read, target: zookeeper.Target{Connect: connect, Own: true},
		credentialFault: fmt.Errorf("%w: %w", ErrCredential, errNotRead), tlsFault: fmt.Errorf("%w: %w", ErrTLS, errNotRead),
	}
}

var errNotRead = errors.New("it was not read yet")

// Target returns the target. An error is ErrCredential, ErrTLS, or both; the connect string and what can be read are there all the
// same.
func (o *Own) Target() (zookeeper.Target, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.target, errors.Join(o.credentialFault, o.tlsFault)
}

// OnChange calls f after the credential or the TLS settings changed, were lost or came back. f must not block.
func (o *Own) OnChange(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listeners = append(o.listeners, f)
}

// look reads the credential and the TLS settings, and tells whether anything is different.
func (o *Own) look() (changed bool) {
	credential, credentialFault := readOr(ErrCredential, o.read.Credential)
	tls, tlsFault := readOr(ErrTLS, o.read.TLS)
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.target.Key()
	o.target.Credential, o.target.TLS = credential, tls
	changed = before != o.target.Key() ||
		(credentialFault == nil) != (o.credentialFault == nil) || (tlsFault == nil) != (o.tlsFault == nil)
	o.credentialFault, o.tlsFault = credentialFault, tlsFault
	return changed
}

// readOr reads a value, or returns the zero value and a fault. What cannot be read is read once more: a mounted Secret changes under
// its readers, who then have some files of before and some of now.
func readOr[T any](fault error, read func() (T, error)) (T, error) {
	out, err := read()
	if err != nil {
		out, err = read()
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("%w: %w", fault, err)
	}
	return out, nil
}

// watch keeps the target current until ctx ends.
func (o *Own) watch(ctx context.Context, log *slog.Logger, every time.Duration) {
	if _, err := o.Target(); err != nil {
		log.Warn("the operator's own ZooKeeper ensemble cannot be used", "error", err)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !o.look() {
			continue
		}
		if _, err := o.Target(); err != nil {
			log.Warn("the operator's own ZooKeeper ensemble cannot be used any more", "error", err)
		} else {
			log.Info("the operator's own ZooKeeper credential or TLS files are others")
		}
		o.mu.Lock()
		listeners := o.listeners
		o.mu.Unlock()
		for _, tell := range listeners {
			tell()
		}
	}
}
