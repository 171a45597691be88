package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper"
	"github.com/holdfast-io/holdfast/operator/internal/zookeeper/zktypes"
)

// walker writes the manifests of a subtree.
type walker struct {
	options
	session          *zookeeper.Session
	out, log         io.Writer
	written, skipped int
}

// walk exports a znode and all below it, parents first and siblings in order, so that two exports of one state are equal.
func (w *walker) walk(ctx context.Context, at string) error {
	full := w.session.Target().Connect.Full(at)
	if zktypes.Below(full, zktypes.Reserved) {
		return nil
	}
	names, err := w.session.Children(ctx, at)
	switch {
	case errors.Is(err, zookeeper.ErrNoNode):
		if at == w.root {
			return fmt.Errorf("znode %s does not exist", full)
		}
		return nil // it went while we walked
	case errors.Is(err, zookeeper.ErrNoAuth):
		return w.skip(at, "the credential may not read it")
	case err != nil:
		return err
	}
	if at != "/" {
		if err := w.one(ctx, at, len(names) > 0); err != nil {
			return err
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if err := w.walk(ctx, strings.TrimSuffix(at, "/")+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) skip(at, why string) error {
	w.skipped++
	_, err := fmt.Fprintf(w.log, "left out %s: %s\n", at, why)
	return err
}

func (w *walker) one(ctx context.Context, at string, parent bool) error {
	content, err := w.session.Get(ctx, at)
	switch {
	case errors.Is(err, zookeeper.ErrNoNode):
		return nil
	case errors.Is(err, zookeeper.ErrNoAuth):
		return w.skip(at, "the credential may not read it")
	case err != nil:
		return err
	case content.Ephemeral:
		return w.skip(at, "it is ephemeral")
	case parent && content.Size == 0 && !w.empty:
		return w.skip(at, "it is empty and has children")
	case zktypes.ValidatePath(at) != nil:
		return w.skip(at, zktypes.ValidatePath(at).Error())
	}
	text, err := yaml.Marshal(w.manifest(at, content))
	if err != nil {
		return fmt.Errorf("write the manifest of %s: %w", at, err)
	}
	w.written++
	_, err = fmt.Fprintf(w.out, "---\n%s", text)
	return err
}

// manifest is a ZooKeeperConfig without the parts that an API server fills in.
type manifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        map[string]string            `json:"metadata"`
	Spec            v1alpha1.ZooKeeperConfigSpec `json:"spec"`
}

// manifest declares a znode as it is, so that applying it changes nothing and takes nothing from anybody.
func (w *walker) manifest(at string, content zookeeper.Content) manifest {
	out := manifest{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ZooKeeperConfig"},
		Metadata: map[string]string{"name": nameOf(at)},
		Spec: v1alpha1.ZooKeeperConfigSpec{
			Path: at, Adoption: v1alpha1.AdoptionIfEqual,
			DriftPolicy: v1alpha1.DriftReport, DeletionPolicy: v1alpha1.DeletionOrphan,
		},
	}
	if w.namespace != "" {
		out.Metadata["namespace"] = w.namespace
	}
	for _, entry := range content.ACL {
		out.Spec.ACL = append(out.Spec.ACL, v1alpha1.ZnodeACL{Scheme: entry.Scheme, ID: entry.ID, Perms: entry.Perms.String()})
	}
	binary := !utf8.Valid(content.Value)
	if binary {
		out.Spec.Encoding = v1alpha1.EncodingBinary
	}
	switch {
	case w.secret(at):
		ref := &v1alpha1.ObjectKeyReference{Name: "zk-" + out.Metadata["name"], Key: "value"}
		out.Spec.DataFrom = &v1alpha1.ZnodeDataSource{SecretKeyRef: ref}
	case binary:
		out.Spec.Data = content.Value
	default:
		text := string(content.Value)
		out.Spec.StringData = &text
	}
	return out
}

func (w *walker) secret(at string) bool {
	return slices.ContainsFunc(w.secrets, func(pattern string) bool {
		matched, err := path.Match(pattern, at)
		return err == nil && matched
	})
}

// maxName leaves room for the prefix of a Secret's name and for the hash.
const maxName = 200

// nameOf makes an object's name of a path. Paths that differ only in what a name cannot show get different hashes.
func nameOf(at string) string {
	trimmed := strings.TrimPrefix(at, "/")
	var out strings.Builder
	for _, char := range strings.ToLower(trimmed) {
		if (char >= 'a' && char <= 'z') || (char >= '0' && char <= '9') {
			out.WriteRune(char)
		} else {
			out.WriteByte('-')
		}
	}
	name := strings.Trim(out.String(), "-")
	plain := strings.ReplaceAll(trimmed, "/", "-") == name && !strings.Contains(trimmed, "-")
	if plain && len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(at))
	if name == "" {
		name = "znode"
	}
	return strings.Trim(name[:min(len(name), maxName)], "-") + "-" + hex.EncodeToString(sum[:4])
}
