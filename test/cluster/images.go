package cluster

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// builtinImages are made from programs of the bin folder: the pods' sandbox and the name server.
var builtinImages = []string{"pause", "coredns"}

// makeBuiltinImages makes their archives and records them, unless that was done before.
func (c *Cluster) makeBuiltinImages(ctx context.Context) error {
	if c.imagesFrom() == c.settings.binDir {
		return nil
	}
	if err := os.MkdirAll(c.layout.images(), 0o755); err != nil {
		return err
	}
	var tars []string
	for _, name := range builtinImages {
		file := filepath.Join(c.layout.images(), name+".made")
		cmd := exec.CommandContext(ctx, filepath.Join(c.settings.binDir, "image"), "-o", file,
			"-ref", "holdfast.local/"+name+":1", "-entrypoint", "/"+name, filepath.Join(c.settings.binDir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("make image of %s: %w: %s", name, err, out)
		}
		tars = append(tars, file)
	}
	err := c.rememberImages(tars)
	for _, file := range tars {
		err = errors.Join(err, os.Remove(file))
	}
	if err != nil {
		return err
	}
	return c.update(func(s *state) { s.ImagesFrom = c.settings.binDir })
}

func (c *Cluster) imagesFrom() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.ImagesFrom
}

// LoadImages gives image archives, as `docker save` writes them, to every node of the cluster, and
// to nodes that are added or started later. An archive that a node has already is skipped. A new
// archive replaces the older ones that hold an image of the same name.
func (c *Cluster) LoadImages(ctx context.Context, tars ...string) error {
	return c.exclusive(ctx, func() error {
		if err := c.rememberImages(tars); err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		for _, node := range c.Nodes() {
			group.Go(func() error { return c.importImages(ctx, node) })
		}
		return group.Wait()
	})
}

// rememberImages keeps archives in the cluster's folder.
func (c *Cluster) rememberImages(tars []string) error {
	for _, file := range tars {
		hash, err := hashFile(file)
		if err != nil {
			return fmt.Errorf("image archive %s: %w", file, err)
		}
		refs, err := imageRefs(file)
		if err != nil {
			return fmt.Errorf("image archive %s: %w", file, err)
		}
		if err := copyFile(file, c.layout.image(hash)); err != nil {
			return fmt.Errorf("keep image archive %s: %w", file, err)
		}
		var dropped []image
		err = c.update(func(s *state) { s.Images, dropped = addImage(s.Images, image{Refs: refs, SHA256: hash}) })
		if err != nil {
			return err
		}
		for _, old := range dropped {
			if err := os.Remove(c.layout.image(old.SHA256)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// addImage adds an image and drops those whose every name it takes over.
func addImage(images []image, added image) (kept, dropped []image) {
	for _, old := range images {
		switch {
		case old.SHA256 == added.SHA256:
		case !slices.ContainsFunc(old.Refs, func(ref string) bool { return !slices.Contains(added.Refs, ref) }):
			dropped = append(dropped, old)
		default:
			kept = append(kept, old)
		}
	}
	return append(kept, added), dropped
}

// importImages gives a node the archives that it does not have.
func (c *Cluster) importImages(ctx context.Context, node string) error {
	c.mu.Lock()
	images := slices.Clone(c.state.Images)
	c.mu.Unlock()
	has := c.record(node).Images
	for _, img := range images {
		if has[img.SHA256] {
			continue
		}
		if _, err := c.command(ctx, node, "ctr", "--namespace=k8s.io", "images", "import", c.layout.image(img.SHA256)); err != nil {
			return fmt.Errorf("load image %s: %w", strings.Join(img.Refs, ", "), err)
		}
		err := c.update(func(s *state) {
			m := s.machine(node)
			m.Images[img.SHA256] = true
			for hash := range m.Images { // an archive that comes back later must be loaded again
				if !slices.ContainsFunc(s.Images, func(i image) bool { return i.SHA256 == hash }) {
					delete(m.Images, hash)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// imageRefs reads the names of the images in an archive out of its manifest.json.
func imageRefs(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	archive := tar.NewReader(f)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("no manifest.json in it: want an archive as `docker save` writes it")
		}
		if err != nil {
			return nil, err
		}
		if path.Clean(header.Name) != "manifest.json" {
			continue
		}
		var manifest []struct {
			RepoTags []string `json:"RepoTags"`
		}
		if err := json.NewDecoder(archive).Decode(&manifest); err != nil {
			return nil, fmt.Errorf("manifest.json: %w", err)
		}
		var refs []string
		for _, m := range manifest {
			refs = append(refs, m.RepoTags...)
		}
		if len(refs) == 0 {
			return nil, errors.New("manifest.json: no image in it has a name")
		}
		return refs, nil
	}
}

func hashFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// copyFile makes target have the content of source. A hard link would change with the original.
func copyFile(source, target string) error {
	if exists(target) {
		return nil
	}
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(target + ".new")
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}
