package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func write(t *testing.T, file, content string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func makeImage(t *testing.T, ref, content string) (archive, digest string) {
	t.Helper()
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "program"), content)
	old := time.Unix(int64(len(content)), 0)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	archive = filepath.Join(dir, "out.tar")
	digest, err := run(options{out: archive, ref: ref, entrypoint: "/program", files: []string{file, file + ":/bin/second"}})
	if err != nil {
		t.Fatal(err)
	}
	return archive, digest
}

func TestDigestDependsOnContentAlone(t *testing.T) {
	_, one := makeImage(t, "example.test/a:1", "content")
	_, same := makeImage(t, "example.test/b:2", "content")
	_, other := makeImage(t, "example.test/a:1", "other")
	if one != same {
		t.Errorf("digests %s and %s of one content differ", one, same)
	}
	if one == other {
		t.Errorf("digest %s is that of two contents", one)
	}
}

func TestArchiveHoldsWhatItsManifestsName(t *testing.T) {
	archive, digest := makeImage(t, "example.test/a:1", "content")
	files := read(t, archive)
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	decode(t, files["index.json"], &index)
	if got := index.Manifests[0]; got.Digest != digest || got.Annotations["io.containerd.image.name"] != "example.test/a:1" {
		t.Errorf("index.json names %+v, want digest %s", got, digest)
	}
	var docker []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	decode(t, files["manifest.json"], &docker)
	for _, name := range append(docker[0].Layers, docker[0].Config, "blobs/sha256/"+digest[len("sha256:"):]) {
		if "blobs/sha256/"+digestOf(files[name])[len("sha256:"):] != name {
			t.Errorf("%s is not there, or its name is not its hash", name)
		}
	}
}

func TestBadUse(t *testing.T) {
	for _, o := range []options{
		{ref: "a:1", entrypoint: "/a", files: []string{"a"}},
		{out: "a.tar", ref: "a:1", entrypoint: "a", files: []string{"a"}},
		{out: "a.tar", ref: "a:1", entrypoint: "/a"},
		{out: "a.tar", ref: "a:1", entrypoint: "/a", files: []string{"a:b"}},
		{out: "a.tar", ref: "a:1", entrypoint: "/a", files: []string{"/no/such/file"}},
	} {
		if _, err := run(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func read(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func decode(t *testing.T, b []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}
