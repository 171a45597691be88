package zktypes

import (
	"errors"
	"fmt"
	"strings"
)

// The keys of a Secret, and the names of files, that make a credential.
const (
	KeyUsername         = "username"
	KeyPassword         = "password"
	KeyPreviousUsername = "previous-username"
	KeyPreviousPassword = "previous-password"
)

// ErrNoCredential says that there is no user, or no password.
var ErrNoCredential = errors.New("there must be " + KeyUsername + " and " + KeyPassword + ", not empty")

// Credential is what a session shows to the servers. The zero value shows nothing.
type Credential struct {
	// User and Password of the scheme digest.
	User, Password string
	// PreviousUser and PreviousPassword are those that User and Password took the place of, as long as lists of znodes name
	// them. A session shows both. Empty: there are none.
	PreviousUser, PreviousPassword string
}

// ReadCredential makes a credential of values by their keys. A previous password is optional, and the previous user is the present
// one unless it is named. It fails with ErrNoCredential, and with another error for what the scheme does not allow; errors have no
// values.
func ReadCredential(value func(key string) string) (Credential, error) {
	out := Credential{
		User: value(KeyUsername), Password: value(KeyPassword),
		PreviousUser: value(KeyPreviousUsername), PreviousPassword: value(KeyPreviousPassword),
	}
	switch {
	case out.User == "" || out.Password == "":
		return Credential{}, ErrNoCredential
	case out.PreviousUser != "" && out.PreviousPassword == "":
		return Credential{}, fmt.Errorf("there is a %s without a %s, not empty", KeyPreviousUsername, KeyPreviousPassword)
	case out.PreviousPassword != "" && out.PreviousUser == "":
		out.PreviousUser = out.User
	}
	for _, key := range []string{KeyUsername, KeyPreviousUsername} {
		if strings.Contains(value(key), ":") {
			return Credential{}, fmt.Errorf("the %s has a colon, which ZooKeeper's digest scheme does not allow", key)
		}
	}
	if out.PreviousUser == out.User && out.PreviousPassword == out.Password {
		out.PreviousUser, out.PreviousPassword = "", ""
	}
	return out, nil
}

// Identities are what the servers take whoever shows the credential for, without permissions: one, or none for the zero value.
// What it was before is not among them.
func (c Credential) Identities() []ACL { return identity(c.User, c.Password) }

// Previous is what the servers took it for before, likewise.
func (c Credential) Previous() []ACL { return identity(c.PreviousUser, c.PreviousPassword) }

func identity(user, password string) []ACL {
	if user == "" && password == "" {
		return nil
	}
	return []ACL{{Scheme: SchemeDigest, ID: DigestID(user, password)}}
}

// Granting returns identities with permissions.
func Granting(identities []ACL, perms Perms) []ACL {
	out := make([]ACL, 0, len(identities))
	for _, each := range identities {
		each.Perms = perms
		out = append(out, each)
	}
	return out
}
