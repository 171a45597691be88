// Package seed keeps the one secret from which all authorities of an operator are derived, in a Secret of the operator's own
// namespace.
package seed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/certs"
)

// Keys of the Secret. Certificates are issued from the first; what came from the other is still trusted.
const (
	Key         = "seed"
	PreviousKey = "previous-seed"
)

const (
	patience = 30 * time.Second
	between  = time.Second
)

// Seeds are what is derived from.
type Seeds struct {
	// All has the present seed first.
	All [][]byte
	// Installation tells this operator's from others. It stays the same when the seed is replaced.
	Installation string
}

// errInvalid is a Secret that is not what Load makes.
var errInvalid = errors.New("not a seed")

// Load returns the seeds of the Secret, and makes it if there is none. Several operators may do so at once: one of them makes
// it. Requests that fail are made again for half a minute, since permissions may come a little later than the operator.
func Load(ctx context.Context, reader client.Reader, writer client.Writer, name types.NamespacedName) (Seeds, error) {
	var seeds Seeds
	var last error
	err := wait.PollUntilContextTimeout(ctx, between, patience, true, func(ctx context.Context) (bool, error) {
		seeds, last = load(ctx, reader, writer, name)
		if errors.Is(last, errInvalid) {
			return false, last
		}
		return last == nil, nil
	})
	if err != nil {
		return Seeds{}, fmt.Errorf("the seed of the certificate authorities, Secret %s: %w", name, errors.Join(last, ctx.Err()))
	}
	return seeds, nil
}

func load(ctx context.Context, reader client.Reader, writer client.Writer, name types.NamespacedName) (Seeds, error) {
	secret := &corev1.Secret{}
	err := reader.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		if secret, err = fresh(name); err != nil {
			return Seeds{}, err
		}
		err = writer.Create(ctx, secret)
	}
	if err != nil {
		return Seeds{}, err // another operator may have been first; the next attempt reads what it made
	}
	all, err := seedsOf(secret.Data)
	return Seeds{All: all, Installation: string(secret.UID)}, err
}

func fresh(name types.NamespacedName) (*corev1.Secret, error) {
	seed := make([]byte, certs.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return nil, fmt.Errorf("draw a seed: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{"app.kubernetes.io/managed-by": "holdfast-operator"},
		},
		Data: map[string][]byte{Key: seed},
	}, nil
}

func seedsOf(data map[string][]byte) ([][]byte, error) {
	var seeds [][]byte
	for _, key := range []string{Key, PreviousKey} {
		switch seed, ok := data[key]; {
		case !ok && key == PreviousKey:
		case len(seed) != certs.SeedSize:
			return nil, fmt.Errorf("%w: key %q has %d bytes, and %d are needed", errInvalid, key, len(seed), certs.SeedSize)
		default:
			seeds = append(seeds, seed)
		}
	}
	return seeds, nil
}
