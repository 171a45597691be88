package zookeeperconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/namespaces"
	"github.com/holdfast-io/holdfast/operator/internal/plan/znode"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// resolver reads what one object refers to. What is missing or cannot be is a *reconcile.StalledError; other errors are
// the reader's.
type resolver struct {
	ctx      context.Context
	reader   client.Reader
	obj      *v1alpha1.ZooKeeperConfig
	settings Settings
}

func invalid(format string, args ...any) error {
	return reconcile.Stalled(v1alpha1.ReasonInvalidSpec, format, args...)
}

// target is where the object's znode should be.
func (r resolver) target() (zookeeper.Target, error) {
	connection := r.obj.Spec.Connection
	if connection == nil {
		connection = &v1alpha1.ZooKeeperConnection{}
	}
	text, err := r.connectString(connection)
	if err != nil {
		return zookeeper.Target{}, err
	}
	return r.targetOf(text, reachOf(r.obj))
}

func (r resolver) connectString(connection *v1alpha1.ZooKeeperConnection) (string, error) {
	if ref := connection.ConnectStringFrom; ref != nil {
		data, err := r.configMapKey(ref, "spec.connection.connectStringFrom")
		return strings.TrimSpace(string(data)), err
	}
	return connection.ConnectString, nil
}

// targetOf makes a target of its parts. An empty text is the operator's default.
func (r resolver) targetOf(text string, reach znode.Reach) (zookeeper.Target, error) {
	own, ownErr := r.ownTarget()
	target := own
	if text == "" && len(own.Connect.Hosts) == 0 {
		return zookeeper.Target{}, invalid("spec.connection.connectString is not set, and the operator has no default (zookeeper.connectString of its configuration)")
	}
	if text != "" {
		parsed, err := zktypes.ParseConnectString(text)
		if err != nil {
			return zookeeper.Target{}, invalid("spec.connection: %v", err)
		}
		if parsed.String() != own.Connect.String() {
			target, ownErr = zookeeper.Target{Connect: parsed}, nil
		}
	}
	if err := missing(ownErr, reach); err != nil {
		return zookeeper.Target{}, err
	}
	if reach.Auth != "" {
		var err error
		target.Own = false
		if target.Credential, err = r.credential(reach.Auth, "spec.connection.authSecretRef"); err != nil {
			return zookeeper.Target{}, err
		}
	}
	if reach.TLS {
		var err error
		target.Own = false
		if target.TLS, err = r.tls(reach.TLSSecret, reach.ServerName); err != nil {
			return zookeeper.Target{}, err
		}
	}
	return target, nil
}

// missing says what of the operator's own target an object relies on and cannot be read.
func missing(fault error, reach znode.Reach) error {
	switch {
	case reach.Auth == "" && errors.Is(fault, shared.ErrCredential):
		return reconcile.Unknown(ownRecheck, v1alpha1.ReasonOperatorCredential,
			"the operator's own ZooKeeper credential cannot be read (zookeeper.credentialFolder of its configuration): its administrator has to provide it, or spec.connection.authSecretRef names another")
	case !reach.TLS && errors.Is(fault, shared.ErrTLS):
		return reconcile.Unknown(ownRecheck, v1alpha1.ReasonOperatorTLS,
			"the files of the operator's own ZooKeeper TLS cannot be read (zookeeper.tls.folder of its configuration): its administrator has to provide them, or spec.connection.tls names others")
	}
	return nil
}

// ownRecheck is the time to the next look for what of the operator's own target cannot be read. The component wakes every object
// when that changes; this is for what is set up otherwise.
const ownRecheck = time.Minute

// ownTarget is the operator's own. An error is about the credential and the TLS settings alone.
func (r resolver) ownTarget() (zookeeper.Target, error) {
	if r.settings.Default == nil {
		return zookeeper.Target{}, nil
	}
	return r.settings.Default(r.obj.Namespace)
}

func (r resolver) credential(name, field string) (zookeeper.Credential, error) {
	secret, err := r.secret(name, field)
	if err != nil {
		return zookeeper.Credential{}, err
	}
	out, err := zktypes.ReadCredential(func(key string) string { return string(secret.Data[key]) })
	switch {
	case errors.Is(err, zktypes.ErrNoCredential):
		return zookeeper.Credential{}, reconcile.Stalled(v1alpha1.ReasonSourceMissing, "%s: keys of Secret %s: %v", field, name, err)
	case err != nil:
		return zookeeper.Credential{}, reconcile.Stalled(v1alpha1.ReasonInvalidSpec, "%s: keys of Secret %s: %v", field, name, err)
	}
	return out, nil
}

func (r resolver) tls(name, serverName string) (*zookeeper.TLS, error) {
	if name == "" {
		return &zookeeper.TLS{ServerName: serverName}, nil
	}
	secret, err := r.secret(name, "spec.connection.tls.secretRef")
	if err != nil {
		return nil, err
	}
	return zktypes.ReadTLS(func(key string) []byte { return secret.Data[key] }, serverName), nil
}

// data is what the znode should hold.
func (r resolver) data() ([]byte, error) {
	spec := &r.obj.Spec
	var (
		data []byte
		err  error
	)
	switch {
	case spec.DataFrom != nil && spec.DataFrom.ConfigMapKeyRef != nil:
		data, err = r.configMapKey(spec.DataFrom.ConfigMapKeyRef, "spec.dataFrom.configMapKeyRef")
	case spec.DataFrom != nil && spec.DataFrom.SecretKeyRef != nil:
		data, err = r.secretKey(spec.DataFrom.SecretKeyRef, "spec.dataFrom.secretKeyRef")
	case spec.StringData != nil:
		data = []byte(*spec.StringData)
	default:
		data = spec.Data
	}
	switch {
	case err != nil:
		return nil, err
	case len(data) > zktypes.MaxDataSize:
		return nil, invalid("the data has %d bytes, and a znode holds at most %d", len(data), zktypes.MaxDataSize)
	case spec.Encoding != v1alpha1.EncodingBinary && !utf8.Valid(data):
		return nil, invalid("the data is not valid UTF-8: correct it, or set spec.encoding to binary")
	}
	return data, nil
}

// want is the znode as it should be on a target.
func (r resolver) want(target zookeeper.Target) (znode.Want, []byte, error) {
	data, err := r.data()
	if err != nil {
		return znode.Want{}, nil, err
	}
	spec := &r.obj.Spec
	want := znode.Want{
		Sum: zktypes.SumOf(data), Size: len(data),
		CreateOnly: spec.SyncPolicy == v1alpha1.SyncCreateOnly,
		ReportOnly: spec.DriftPolicy == v1alpha1.DriftReport,
		Adoption:   adoption(spec.Adoption),
		Identities: target.Identities(), Previous: target.Credential.Previous(),
		ParentACL: zktypes.Granting(target.Identities(), zktypes.PermAll),
	}
	if want.ACL, err = r.acl(); err != nil {
		return znode.Want{}, nil, err
	}
	if len(spec.ACL) == 0 {
		want.ACL = want.ParentACL
	}
	if len(want.ACL) == 0 {
		return znode.Want{}, nil, reconcile.Stalled(v1alpha1.ReasonWouldLockOut,
			"there is no credential for %s, so spec.acl has no default: set spec.connection.authSecretRef, or spec.acl", target.Connect.Ensemble())
	}
	// Without a credential, parents cannot be kept to the operator: they get what the author grants on the znode.
	if len(want.ParentACL) == 0 {
		want.ParentACL = want.ACL
	}
	return want, data, nil
}

func adoption(policy v1alpha1.ZnodeAdoption) znode.Adoption {
	switch policy {
	case v1alpha1.AdoptionIfEqual:
		return znode.AdoptIfEqual
	case v1alpha1.AdoptionForce:
		return znode.AdoptForce
	default:
		return znode.AdoptNever
	}
}

func (r resolver) acl() ([]zktypes.ACL, error) {
	var out []zktypes.ACL
	for i, entry := range r.obj.Spec.ACL {
		field := fmt.Sprintf("spec.acl[%d]", i)
		perms, err := zktypes.ParsePerms(entry.Perms)
		if err != nil {
			return nil, invalid("%s: %v", field, err)
		}
		id := entry.ID
		if entry.SecretRef != nil {
			credential, err := r.credential(entry.SecretRef.Name, field+".secretRef")
			if err != nil {
				return nil, err
			}
			id = zktypes.DigestID(credential.User, credential.Password)
		}
		out = append(out, zktypes.ACL{Scheme: entry.Scheme, ID: id, Perms: perms})
	}
	return out, nil
}

func (r resolver) secret(name, field string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	return secret, r.get(secret, name, field, "Secret")
}

func (r resolver) get(into client.Object, name, field, kind string) error {
	err := r.reader.Get(r.ctx, types.NamespacedName{Namespace: r.obj.Namespace, Name: name}, into)
	var unreadable *namespaces.UnreadableError
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Stalled(v1alpha1.ReasonSourceMissing, "%s: there is no %s %s in the namespace", field, kind, name)
	case errors.As(err, &unreadable):
		// When it can be read it comes into the cache, and wakes the object.
		return reconcile.Stalled(v1alpha1.ReasonSourceMissing, "%s: the operator may not read %s %s: it has no right to list them in the namespace", field, kind, name)
	}
	return err
}

func (r resolver) secretKey(ref *v1alpha1.ObjectKeyReference, field string) ([]byte, error) {
	secret, err := r.secret(ref.Name, field)
	if err != nil {
		return nil, err
	}
	if data, found := secret.Data[ref.Key]; found {
		return data, nil
	}
	return nil, reconcile.Stalled(v1alpha1.ReasonSourceMissing, "%s: Secret %s has no key %s", field, ref.Name, ref.Key)
}

func (r resolver) configMapKey(ref *v1alpha1.ObjectKeyReference, field string) ([]byte, error) {
	configMap := &corev1.ConfigMap{}
	if err := r.get(configMap, ref.Name, field, "ConfigMap"); err != nil {
		return nil, err
	}
	if data, found := configMap.Data[ref.Key]; found {
		return []byte(data), nil
	}
	if data, found := configMap.BinaryData[ref.Key]; found {
		return data, nil
	}
	return nil, reconcile.Stalled(v1alpha1.ReasonSourceMissing, "%s: ConfigMap %s has no key %s", field, ref.Name, ref.Key)
}

// stalled tells whether an error is about the object and not about the reader.
func stalled(err error) bool {
	var about *reconcile.StalledError
	return errors.As(err, &about)
}
