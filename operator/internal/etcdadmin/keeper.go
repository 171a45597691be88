package etcdadmin

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/holdfast-io/holdfast/operator/internal/certs"
)

// Owner is whom an account is for. Prefixes of owners with different names do not overlap.
type Owner struct {
	Namespace, Name, UID string
}

// Config is the administrator's access to one etcd.
type Config struct {
	// Endpoints are its client URLs.
	Endpoints []string
	// Keys are the authorities of its servers and a client certificate; each may be left out.
	Keys certs.Keys
	// Username and Password of a user with the role root.
	Username, Password string
	// Installation tells the accounts of this operator from those of others that share the etcd.
	Installation string
	// Seed is what passwords are derived from.
	Seed []byte
}

// ParseConfig reads the data of a Secret: endpoints (separated by commas or blanks), username, password, ca.crt, tls.crt, tls.key.
func ParseConfig(data map[string][]byte) (Config, error) {
	c := Config{
		Endpoints: strings.FieldsFunc(string(data["endpoints"]), func(r rune) bool { return strings.ContainsRune(", \n\t\r", r) }),
		Keys:      certs.Keys{CA: data["ca.crt"], Cert: data["tls.crt"], Key: data["tls.key"]},
		Username:  strings.TrimSpace(string(data["username"])), Password: strings.TrimSpace(string(data["password"])),
	}
	switch {
	case len(c.Endpoints) == 0:
		return Config{}, errors.New(`the key endpoints is missing: list the client URLs, as in spec.etcdEndpoints`)
	case (c.Username == "") != (c.Password == ""):
		return Config{}, errors.New("the keys username and password need each other")
	case len(c.Keys.Cert) == 0 && c.Username == "":
		return Config{}, errors.New("there is neither username and password nor tls.crt and tls.key: etcd would take nobody for its administrator")
	}
	return c, nil
}

// Keeper keeps an account for each owner, and takes away those of owners that are gone. What it knows of accounts it reads from
// etcd: their names say whose they are, and their roles what they may use. So nothing is left behind by a crash, and no object has
// to wait for etcd to be deleted. It is safe for concurrent use; one operator at a time may use it.
type Keeper struct {
	config Config
	etcd   clientv3.Config

	// turn makes changes one after the other: an owner of the name of one that is gone must not be granted what is just being
	// taken away. Not a mutex, since who waits for an etcd that hangs has a deadline.
	turn   *semaphore.Weighted
	client *clientv3.Client // nil until the first use: a client logs in when it is made, and etcd may be away by then
}

// NewKeeper makes a keeper, which connects when it is first used. Close it in the end.
func NewKeeper(config Config) (*Keeper, error) {
	etcd := clientv3.Config{
		Endpoints: config.Endpoints, Username: config.Username, Password: config.Password, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	}
	if len(config.Keys.CA)+len(config.Keys.Cert) > 0 {
		etcd.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if len(config.Keys.CA) > 0 {
		etcd.TLS.RootCAs = x509.NewCertPool()
		if !etcd.TLS.RootCAs.AppendCertsFromPEM(config.Keys.CA) {
			return nil, errors.New("ca.crt holds no PEM certificate")
		}
	}
	if len(config.Keys.Cert) > 0 {
		pair, err := tls.X509KeyPair(config.Keys.Cert, config.Keys.Key)
		if err != nil {
			return nil, fmt.Errorf("tls.crt and tls.key: %w", err)
		}
		etcd.TLS.Certificates = []tls.Certificate{pair}
	}
	return &Keeper{config: config, etcd: etcd, turn: semaphore.NewWeighted(1)}, nil
}

// Close ends the connection, after the change that is under way. It fails when the context ends before.
func (k *Keeper) Close(ctx context.Context) error {
	if err := k.turn.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("close the connection with etcd: %w", err)
	}
	defer k.turn.Release(1)
	if k.client == nil {
		return nil
	}
	return k.client.Close()
}

// admin waits for its turn, and connects if that has not been done. Call done when there is no error.
func (k *Keeper) admin(ctx context.Context) (admin Admin, done func(), err error) {
	if err := k.turn.Acquire(ctx, 1); err != nil {
		return Admin{}, nil, fmt.Errorf("another change of etcd's users takes long: %w", err)
	}
	if k.client == nil {
		client, err := clientv3.New(k.etcd)
		if err != nil {
			k.turn.Release(1)
			return Admin{}, nil, fmt.Errorf("connect to etcd as its administrator: %w", err)
		}
		k.client = client
	}
	return Admin{Client: k.client}, func() { k.turn.Release(1) }, nil
}

// CA is the authorities of etcd's servers, as PEM; empty for those of the system.
func (k *Keeper) CA() []byte { return k.config.Keys.CA }

// Serves tells whether all endpoints are of this etcd.
func (k *Keeper) Serves(endpoints []string) bool {
	return len(endpoints) > 0 && !slices.ContainsFunc(endpoints, func(e string) bool { return !slices.Contains(k.config.Endpoints, e) })
}

// Account is what an owner's account should be.
func (k *Keeper) Account(owner Owner, prefix string) (Account, error) {
	password, err := hkdf.Key(sha256.New, k.config.Seed, nil, fmt.Sprintf("holdfast etcd password v1 %q", owner.UID), 24)
	if err != nil {
		return Account{}, fmt.Errorf("derive a password: %w", err)
	}
	return Account{Name: k.name(owner), Password: hex.EncodeToString(password), Prefix: prefix}, nil
}

func (k *Keeper) space() string { return "holdfast-" + k.config.Installation + "/" }

func (k *Keeper) name(owner Owner) string {
	return k.space() + owner.Namespace + "/" + owner.Name + "/" + owner.UID
}

func (k *Keeper) owner(name string) (Owner, bool) {
	parts := strings.Split(strings.TrimPrefix(name, k.space()), "/")
	if !strings.HasPrefix(name, k.space()) || len(parts) != 3 {
		return Owner{}, false
	}
	return Owner{Namespace: parts[0], Name: parts[1], UID: parts[2]}, true
}

// Grant brings the account of an owner about. An earlier owner of the same name goes first, with its keys.
func (k *Keeper) Grant(ctx context.Context, owner Owner, account Account) error {
	admin, done, err := k.admin(ctx)
	if err != nil {
		return err
	}
	defer done()
	names, err := admin.Names(ctx, k.space()+owner.Namespace+"/"+owner.Name+"/")
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != account.Name {
			if err := admin.Revoke(ctx, name); err != nil {
				return err
			}
		}
	}
	return admin.Grant(ctx, account)
}

// Confirm brings about an account that was granted before, should etcd have lost it (it was restored, or somebody changed it).
// Unlike Grant it takes nothing from another owner of the name, so it may come late.
func (k *Keeper) Confirm(ctx context.Context, account Account) error {
	admin, done, err := k.admin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return admin.Grant(ctx, account)
}

// Collect takes away the accounts, with their keys, of owners that are gone, and returns them. Live returns the owners that
// there are in a namespace, or false for one that cannot be looked into: its accounts stay. So does that of an owner whose name is
// in use again, since its keys may be too; Grant sees to it.
func (k *Keeper) Collect(ctx context.Context, live func(ctx context.Context, namespace string) ([]Owner, bool, error)) ([]Owner, error) {
	admin, done, err := k.admin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	names, err := admin.Names(ctx, k.space())
	if err != nil {
		return nil, err
	}
	var gone []Owner
	var faults []error
	// Owners are asked for after the names were read: one that is not there by now had its account before.
	namespaces := map[string]func(name string) bool{}
	for _, name := range names {
		owner, ours := k.owner(name)
		if !ours {
			continue
		}
		inUse, asked := namespaces[owner.Namespace]
		if !asked {
			owners, known, err := live(ctx, owner.Namespace)
			faults = append(faults, err)
			inUse = func(name string) bool {
				return err != nil || !known || slices.ContainsFunc(owners, func(o Owner) bool { return o.Name == name })
			}
			namespaces[owner.Namespace] = inUse
		}
		if inUse(owner.Name) {
			continue
		}
		if err := admin.Revoke(ctx, name); err != nil {
			faults = append(faults, err)
			continue
		}
		gone = append(gone, owner)
	}
	return gone, errors.Join(faults...)
}
