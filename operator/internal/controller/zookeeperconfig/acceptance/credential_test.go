package acceptance_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	v1alpha1 "github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	pool "github.com/holdfast-io/holdfast/operator/internal/zookeeper/shared"
)

// folder is where the operator's own credential comes from.
type folder struct {
	mu    sync.Mutex
	fault error
}

func (f *folder) read() (user, password string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault != nil {
		return "", "", f.fault
	}
	return operatorCredential.User, operatorCredential.Password, nil
}

func (f *folder) set(fault error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *folder) asOwn(t *testing.T) setting {
	return func(o *operatorOptions) {
		target, err := o.Settings.Default("")
		require.NoError(t, err)
		o.own = pool.NewOwn(target.Connect, f.read)
	}
}

// Objects that rely on the operator's own credential say so while it cannot be read, the others do not care, and all go on by
// themselves when it is there.
func TestTheOperatorsOwnCredentialCannotBeRead(t *testing.T) {
	f := start(t, shared.ConnectString())
	f.stop()
	credential := &folder{fault: errors.New("no such file")}
	f.run(credential.asOwn(t))
	f.secret("own", map[string]string{"username": operatorCredential.User, "password": operatorCredential.Password})
	f.create(f.object("relies", "/relies", "a"))
	f.create(f.object("brings", "/brings", "b", func(spec *v1alpha1.ZooKeeperConfigSpec) {
		spec.Connection = &v1alpha1.ZooKeeperConnection{AuthSecretRef: &v1alpha1.ObjectReference{Name: "own"}}
	}))
	obj := f.not("relies", v1alpha1.ReasonOperatorCredential)
	require.Empty(t, obj.Finalizers)
	require.Contains(t, obj.Status.Message, "zookeeper.credentialFolder")
	require.NotContains(t, obj.Status.Message, "no such file", "the cause is the operator's business")
	f.ready("brings")

	credential.set(nil)
	f.ready("relies")
	f.holds("/relies", "a")
	f.eventually("one event", func() bool { return f.events("relies")[v1alpha1.ReasonOperatorCredential] == 1 })

	credential.set(errors.New("unmounted"))
	f.not("relies", v1alpha1.ReasonOperatorCredential)
	f.ready("brings")
	f.remove("relies")
	f.gone("relies") // by the credential that worked last
	f.absent("/relies")
}
