package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// ZooKeeper configures the kinds that use ZooKeeper.
type ZooKeeper struct {
	// ConnectString of the ensemble that an object uses which names none: "zk-0:2181,zk-1:2181/chroot".
	// Empty: each object names its own.
	ConnectString string `json:"connectString"`
	// CredentialFolder is a folder with the files username and password, such as a mounted Secret. It is the
	// operator's own credential, and goes to the ensemble of ConnectString alone. It is read again when a pass needs
	// it, so a rotated Secret takes effect; previous-username and previous-password are what the operator shows beside it, as
	// long as znodes have lists that name them. Empty: the operator shows none.
	CredentialFolder string `json:"credentialFolder"`
	// TLS of the connections to the ensemble of ConnectString alone.
	TLS ZooKeeperTLS `json:"tls"`
	// SessionTimeout is what is asked of the servers. Default 10s.
	SessionTimeout Duration `json:"sessionTimeout"`
	// RequestTimeout bounds one request. Default 5s.
	RequestTimeout Duration `json:"requestTimeout"`
	// BreakerFailures is the number of failures in a row after which an ensemble counts as away. Default 5.
	BreakerFailures int `json:"breakerFailures"`
	// AuditInterval is how often access control lists are compared with what is declared: ZooKeeper's watches
	// don't tell of their changes. Default 30s.
	AuditInterval Duration `json:"auditInterval"`
	// DeletionDeadline is how long a deletion waits for an ensemble that is away before it leaves the znode behind.
	// Default 8s.
	DeletionDeadline Duration `json:"deletionDeadline"`
	// MaxConcurrentReconciles is the number of objects that are worked on at once, 1 to 256. Default 16.
	MaxConcurrentReconciles int `json:"maxConcurrentReconciles"`
	// MaxSessions is the number of sessions at a time; each ensemble and credential that objects name is one. 1 to 10000,
	// default 256.
	MaxSessions int `json:"maxSessions"`
	// MaxSessionsPerNamespace is the number of those that the objects of one namespace may use at a time. 1 to 10000, default 32.
	MaxSessionsPerNamespace int `json:"maxSessionsPerNamespace"`
	// Grants say which namespaces may write below which paths. None: every namespace may write everywhere.
	Grants []ZooKeeperGrant `json:"grants"`
}

// ZooKeeperTLS says whether and how the operator speaks TLS to the ensemble of its configuration.
type ZooKeeperTLS struct {
	// Enabled: the operator speaks TLS. Default false, which is plain TCP.
	Enabled bool `json:"enabled"`
	// Folder is a folder with the files ca.crt (what the servers' certificates are verified against; the system's if missing), and
	// tls.crt and tls.key (what the operator shows; nothing if missing), such as a mounted Secret. It is read again as
	// CredentialFolder is. Empty: the servers are verified against the system's certificates, and nothing is shown.
	Folder string `json:"folder"`
	// ServerName is what the servers' certificates are verified for. Empty: the host of the connect string.
	ServerName string `json:"serverName"`
}

// ZooKeeperGrant lets namespaces write below paths.
type ZooKeeperGrant struct {
	// Namespaces that it speaks of; "*" is every one.
	Namespaces []string `json:"namespaces"`
	// Ensembles are connect strings without a chroot. Empty: every ensemble.
	Ensembles []string `json:"ensembles"`
	// Paths as the ensemble sees them, chroot included; each allows itself and all below it. "{namespace}" in one
	// stands for the object's namespace.
	Paths []string `json:"paths"`
}

func defaultZooKeeper() ZooKeeper {
	return ZooKeeper{
		SessionTimeout: Duration{Duration: 10 * time.Second}, RequestTimeout: Duration{Duration: 5 * time.Second},
		BreakerFailures: 5, AuditInterval: Duration{Duration: 30 * time.Second},
		DeletionDeadline: Duration{Duration: 8 * time.Second}, MaxConcurrentReconciles: 16, MaxSessions: 256,
		MaxSessionsPerNamespace: 32,
	}
}

func (z ZooKeeper) validate(path *field.Path) field.ErrorList {
	var faults field.ErrorList
	if z.ConnectString != "" {
		if _, err := zktypes.ParseConnectString(z.ConnectString); err != nil {
			faults = append(faults, field.Invalid(path.Child("connectString"), z.ConnectString, err.Error()))
		}
	}
	faults = append(faults, z.TLS.validate(path.Child("tls"), z.ConnectString)...)
	for name, value := range map[string]Duration{
		"sessionTimeout": z.SessionTimeout, "requestTimeout": z.RequestTimeout,
		"auditInterval": z.AuditInterval, "deletionDeadline": z.DeletionDeadline,
	} {
		faults = append(faults, value.validate(path.Child(name), 100*time.Millisecond, time.Hour)...)
	}
	if n := z.BreakerFailures; n < 1 || n > 1000 {
		faults = append(faults, field.Invalid(path.Child("breakerFailures"), n, "must be 1 to 1000"))
	}
	if n := z.MaxConcurrentReconciles; n < 1 || n > 256 {
		faults = append(faults, field.Invalid(path.Child("maxConcurrentReconciles"), n, "must be 1 to 256"))
	}
	if n := z.MaxSessions; n < 1 || n > 10000 {
		faults = append(faults, field.Invalid(path.Child("maxSessions"), n, "must be 1 to 10000"))
	}
	if n := z.MaxSessionsPerNamespace; n < 1 || n > 10000 {
		faults = append(faults, field.Invalid(path.Child("maxSessionsPerNamespace"), n, "must be 1 to 10000"))
	}
	for i, grant := range z.Grants {
		faults = append(faults, grant.validate(path.Child("grants").Index(i))...)
	}
	return faults
}

func (t ZooKeeperTLS) validate(path *field.Path, connect string) field.ErrorList {
	var faults field.ErrorList
	if t.Enabled && connect == "" {
		faults = append(faults, field.Invalid(path.Child("enabled"), true,
			"needs zookeeper.connectString: an object that names its own ensemble names its TLS too, in spec.connection.tls"))
	}
	for name, value := range map[string]string{"folder": t.Folder, "serverName": t.ServerName} {
		if !t.Enabled && value != "" {
			faults = append(faults, field.Invalid(path.Child(name), value, "needs zookeeper.tls.enabled"))
		}
	}
	if name := t.ServerName; name != "" && net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
		faults = append(faults, field.Invalid(path.Child("serverName"), name, "must be a DNS name in lower case, or an IP address"))
	}
	return faults
}

func (g ZooKeeperGrant) validate(path *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(g.Namespaces) == 0 {
		faults = append(faults, field.Required(path.Child("namespaces"), `list namespaces, or "*" for every one`))
	}
	for i, name := range g.Namespaces {
		if name != "*" {
			faults = append(faults, namespace(path.Child("namespaces").Index(i), name)...)
		}
	}
	if len(g.Paths) == 0 {
		faults = append(faults, field.Required(path.Child("paths"), `list paths, or "/" for all`))
	}
	for i, root := range g.Paths {
		if err := zktypes.ValidatePath(root); root != "/" && err != nil {
			faults = append(faults, field.Invalid(path.Child("paths").Index(i), root, err.Error()))
		}
	}
	for i, text := range g.Ensembles {
		at := path.Child("ensembles").Index(i)
		switch connect, err := zktypes.ParseConnectString(text); {
		case err != nil:
			faults = append(faults, field.Invalid(at, text, err.Error()))
		case connect.Chroot != "":
			faults = append(faults, field.Invalid(at, text, "must have no chroot: paths are given as the ensemble sees them"))
		}
	}
	return faults
}

// OwnConnect returns the ensemble of objects that name none, or false when there is none. The configuration must be valid.
func (z ZooKeeper) OwnConnect() (zktypes.ConnectString, bool) {
	connect, err := zktypes.ParseConnectString(z.ConnectString)
	return connect, z.ConnectString != "" && err == nil
}

// PlanGrants returns the grants in the form that decisions are made by. The configuration must be valid.
func (z ZooKeeper) PlanGrants() []znode.Grant {
	out := make([]znode.Grant, 0, len(z.Grants))
	for _, grant := range z.Grants {
		each := znode.Grant{Namespaces: grant.Namespaces, Paths: grant.Paths}
		for _, text := range grant.Ensembles {
			if connect, err := zktypes.ParseConnectString(text); err == nil {
				each.Ensembles = append(each.Ensembles, connect)
			}
		}
		out = append(out, each)
	}
	return out
}

// Credential reads the operator's own credential. Without a folder it is the zero value.
func (z ZooKeeper) Credential() (zktypes.Credential, error) {
	if z.CredentialFolder == "" {
		return zktypes.Credential{}, nil
	}
	files := folder{path: z.CredentialFolder}
	out, err := zktypes.ReadCredential(func(name string) string { return strings.TrimRight(string(files.read(name)), "\r\n") })
	if err := errors.Join(files.faults, err); err != nil {
		return zktypes.Credential{}, fmt.Errorf("zookeeper.credentialFolder %s: %w", z.CredentialFolder, err)
	}
	return out, nil
}

// ReadTLS reads the operator's own TLS settings, and checks that they fit together. They are nil for plain TCP.
func (z ZooKeeper) ReadTLS() (*zktypes.TLS, error) {
	if !z.TLS.Enabled {
		return nil, nil
	}
	if z.TLS.Folder == "" {
		return &zktypes.TLS{ServerName: z.TLS.ServerName}, nil
	}
	files := folder{path: z.TLS.Folder}
	out := zktypes.ReadTLS(files.read, z.TLS.ServerName)
	_, err := out.Config()
	if len(out.CA) == 0 && len(out.Cert) == 0 && len(out.Key) == 0 {
		err = fmt.Errorf("there must be %s, or %s and %s, not empty", zktypes.KeyCA, zktypes.KeyTLSCert, zktypes.KeyTLSKey)
	}
	if err := errors.Join(files.faults, err); err != nil {
		return nil, fmt.Errorf("zookeeper.tls.folder %s: %w", z.TLS.Folder, err)
	}
	return out, nil
}

// folder is read file by file.
type folder struct {
	path   string
	faults error
}

// read returns the content of a file, or nothing for one that there is not.
func (f *folder) read(name string) []byte {
	content, err := os.ReadFile(filepath.Join(f.path, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.faults = errors.Join(f.faults, err)
	}
	return content
}
