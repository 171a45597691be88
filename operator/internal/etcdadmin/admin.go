// Package etcdadmin gives each owner of a prefix an etcd user that may use that prefix and nothing else.
package etcdadmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Account is a user of etcd, and the role of the same name that is its only one.
type Account struct {
	// Name of the user and of its role.
	Name string
	// Password of the user.
	Password string
	// Prefix that it may read and write. It ends in "/", so that no other prefix begins with it by chance.
	Prefix string
}

// Validate says what is wrong with an account.
func (a Account) Validate() error {
	switch {
	case a.Name == "" || a.Name == "root":
		return fmt.Errorf("an account's name is %q; it must not be empty or root", a.Name)
	case a.Password == "":
		return fmt.Errorf("account %s has no password", a.Name)
	case len(a.Prefix) < 2 || !strings.HasPrefix(a.Prefix, "/") || !strings.HasSuffix(a.Prefix, "/"):
		return fmt.Errorf("the prefix of account %s is %q; it must begin and end in '/', and have something between", a.Name, a.Prefix)
	}
	return nil
}

// Range returns the range of keys that begin with a prefix: from key, and before end.
func Range(prefix string) (key, end string) { return prefix, clientv3.GetPrefixRangeEnd(prefix) }

// Admin administers accounts with a client that may. It is safe for concurrent use.
type Admin struct {
	Client *clientv3.Client
}

// Grant makes an account, or makes one that is there what it should be. It may be repeated; the role comes before the user, so
// that a user is never there with a role of somebody else.
func (a Admin) Grant(ctx context.Context, account Account) error {
	if err := account.Validate(); err != nil {
		return err
	}
	if err := a.role(ctx, account); err != nil {
		return fmt.Errorf("etcd role %s: %w", account.Name, err)
	}
	if err := a.user(ctx, account); err != nil {
		return fmt.Errorf("etcd user %s: %w", account.Name, err)
	}
	return nil
}

func (a Admin) role(ctx context.Context, account Account) error {
	if _, err := a.Client.RoleAdd(ctx, account.Name); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return err
	}
	role, err := a.Client.RoleGet(ctx, account.Name)
	if err != nil {
		return err
	}
	key, end := Range(account.Prefix)
	granted := false
	for _, permission := range role.Perm {
		if string(permission.Key) == key && string(permission.RangeEnd) == end && permission.PermType == authpb.READWRITE {
			granted = true
			continue
		}
		if _, err := a.Client.RoleRevokePermission(ctx, account.Name, string(permission.Key), string(permission.RangeEnd)); err != nil {
			return err
		}
	}
	if granted {
		return nil
	}
	_, err = a.Client.RoleGrantPermission(ctx, account.Name, key, end, clientv3.PermissionType(clientv3.PermReadWrite))
	return err
}

func (a Admin) user(ctx context.Context, account Account) error {
	_, err := a.Client.UserAdd(ctx, account.Name, account.Password)
	if errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		err = a.password(ctx, account)
	}
	if err != nil {
		return err
	}
	user, err := a.Client.UserGet(ctx, account.Name)
	if err != nil {
		return err
	}
	for _, role := range user.Roles {
		if role != account.Name {
			if _, err := a.Client.UserRevokeRole(ctx, account.Name, role); err != nil {
				return err
			}
		}
	}
	if slices.Contains(user.Roles, account.Name) {
		return nil
	}
	_, err = a.Client.UserGrantRole(ctx, account.Name, account.Name)
	return err
}

// password changes it only if it is another one: a change makes every token of the user worthless.
func (a Admin) password(ctx context.Context, account Account) error {
	_, err := a.Client.Authenticate(ctx, account.Name, account.Password)
	if !errors.Is(err, rpctypes.ErrAuthFailed) {
		return err
	}
	_, err = a.Client.UserChangePassword(ctx, account.Name, account.Password)
	return err
}

// Revoke takes an account and every key of the prefix away. It may be repeated. The user goes first, so that nothing is written
// after the keys are gone, and the role last: it tells a Revoke that was interrupted what the prefix was.
func (a Admin) Revoke(ctx context.Context, name string) error {
	if _, err := a.Client.UserDelete(ctx, name); err != nil && !errors.Is(err, rpctypes.ErrUserNotFound) {
		return fmt.Errorf("etcd user %s: %w", name, err)
	}
	role, err := a.Client.RoleGet(ctx, name)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("etcd role %s: %w", name, err)
	}
	for _, permission := range role.Perm {
		if key, end := Range(string(permission.Key)); !strings.HasSuffix(key, "/") || end != string(permission.RangeEnd) {
			continue // not one of Grant's
		}
		if _, err := a.Client.Delete(ctx, string(permission.Key), clientv3.WithRange(string(permission.RangeEnd))); err != nil {
			return fmt.Errorf("the keys of etcd role %s: %w", name, err)
		}
	}
	if _, err := a.Client.RoleDelete(ctx, name); err != nil && !errors.Is(err, rpctypes.ErrRoleNotFound) {
		return fmt.Errorf("etcd role %s: %w", name, err)
	}
	return nil
}

// Names returns the accounts whose names begin so; those too of which an interrupted Revoke left the role alone.
func (a Admin) Names(ctx context.Context, prefix string) ([]string, error) {
	roles, err := a.Client.RoleList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the roles of etcd: %w", err)
	}
	return slices.DeleteFunc(roles.Roles, func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}
