package shared

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// credentialInterval is how often the files of the operator's own credential are looked at. They are two small local ones,
// which the kubelet brings in at its leisure; nothing else tells of them on every kind of volume.
const credentialInterval = 2 * time.Second

// Own is the operator's own target: the ensemble of every object that names none, with the credential as it is now. It is
// safe for concurrent use.
type Own struct {
	connect zktypes.ConnectString
	read    func() (zookeeper.Credential, error)

	mu         sync.Mutex
	credential zookeeper.Credential
	fault      error
	listeners  []func()
}

// NewOwn makes it. The credential is read for the first time when the pool's component is set up.
func NewOwn(connect zktypes.ConnectString, read func() (zookeeper.Credential, error)) *Own {
	return &Own{connect: connect, read: read, fault: errNotRead}
}

var errNotRead = errors.New("it was not read yet")

// Target returns the target. An error says that the credential cannot be read; the connect string is there all the same.
func (o *Own) Target() (zookeeper.Target, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return zookeeper.Target{Connect: o.connect, Credential: o.credential, Own: true}, o.fault
}

// OnChange calls f after the credential changed, was lost or came back. f must not block.
func (o *Own) OnChange(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.listeners = append(o.listeners, f)
}

// look reads the credential, and tells whether anything is different.
func (o *Own) look() (changed bool) {
	now, err := o.read()
	if err != nil {
		now = zookeeper.Credential{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	changed = now != o.credential || (err == nil) != (o.fault == nil)
	o.credential, o.fault = now, err
	return changed
}

// watch keeps the credential current until ctx ends.
func (o *Own) watch(ctx context.Context, log *slog.Logger, every time.Duration) {
	if _, err := o.Target(); err != nil {
		log.Warn("the operator's own ZooKeeper credential cannot be read", "error", err)
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
			log.Warn("the operator's own ZooKeeper credential cannot be read any more", "error", err)
		} else {
			log.Info("the operator's own ZooKeeper credential is another")
		}
		o.mu.Lock()
		listeners := o.listeners
		o.mu.Unlock()
		for _, tell := range listeners {
			tell()
		}
	}
}
