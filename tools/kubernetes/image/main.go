// Command image makes an image archive FROM scratch out of static binaries. The archive is both an
// OCI layout and a `docker save` archive, so containerd, docker and podman load it. The printed
// digest is that of the image's manifest and depends on the content alone.
//
// usage: image -o OUT.tar -ref REF -entrypoint /PROGRAM FILE[:/PATH] ...
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
	user         = "65532:65532"
)

type options struct {
	out, ref, entrypoint string
	files                []string
}

func main() {
	var o options
	flag.StringVar(&o.out, "o", "", "archive to write")
	flag.StringVar(&o.ref, "ref", "", "name of the image, with its tag")
	flag.StringVar(&o.entrypoint, "entrypoint", "", "path of the program in the image")
	flag.Parse()
	o.files = flag.Args()
	digest, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

func run(o options) (digest string, err error) {
	if o.out == "" || o.ref == "" || !path.IsAbs(o.entrypoint) || len(o.files) == 0 {
		return "", errors.New("usage: image -o OUT.tar -ref REF -entrypoint /PROGRAM FILE[:/PATH] ...")
	}
	layer, err := layerOf(o.files)
	if err != nil {
		return "", err
	}
	image, err := describe(o, layer)
	if err != nil {
		return "", err
	}
	var archive bytes.Buffer
	if err := writeTar(&archive, image.entries); err != nil {
		return "", err
	}
	if err := os.WriteFile(o.out+".new", archive.Bytes(), 0o644); err != nil {
		return "", err
	}
	return image.digest, os.Rename(o.out+".new", o.out)
}

// entry is one file of a tar archive, or a folder when its name ends with a slash.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// layerOf makes the image's only layer: the files, by their path in the image, and /tmp.
func layerOf(files []string) ([]byte, error) {
	entries := []entry{{name: "tmp/", mode: 0o1777}}
	for _, file := range files {
		source, target, ok := strings.Cut(file, ":")
		if !ok {
			target = "/" + filepath.Base(source)
		}
		if !path.IsAbs(target) {
			return nil, fmt.Errorf("%s: path in the image %q is not absolute", file, target)
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: strings.TrimPrefix(path.Clean(target), "/"), mode: 0o755, content: content})
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].name < entries[j].name })
	var layer bytes.Buffer
	err := writeTar(&layer, entries)
	return layer.Bytes(), err
}

// writeTar is deterministic: no owner, and one fixed time.
func writeTar(w io.Writer, entries []entry) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := t.Write(e.content); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return t.Close()
}

type described struct {
	digest  string
	entries []entry
}

type object = map[string]any

// describe makes the archive's files: the blobs, the OCI index, and docker's manifest over them.
func describe(o options, layer []byte) (described, error) {
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Entrypoint": []string{o.entrypoint}, "User": user, "WorkingDir": "/"},
		"rootfs": object{"type": "layers", "diff_ids": []string{digestOf(layer)}},
	})
	if err != nil {
		return described{}, err
	}
	manifest, err := json.Marshal(object{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": descriptor(configType, config), "layers": []object{descriptor(layerType, layer)},
	})
	if err != nil {
		return described{}, err
	}
	named := descriptor(manifestType, manifest)
	named["annotations"] = object{"io.containerd.image.name": o.ref, "org.opencontainers.image.ref.name": tagOf(o.ref)}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": []object{named}})
	if err != nil {
		return described{}, err
	}
	docker, err := json.Marshal([]object{{"Config": blobName(config), "RepoTags": []string{o.ref}, "Layers": []string{blobName(layer)}}})
	if err != nil {
		return described{}, err
	}
	return described{digest: digestOf(manifest), entries: []entry{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", 0o644, index},
		{"manifest.json", 0o644, docker},
		{blobName(config), 0o644, config},
		{blobName(manifest), 0o644, manifest},
		{blobName(layer), 0o644, layer},
	}}, nil
}

func descriptor(mediaType string, content []byte) object {
	return object{"mediaType": mediaType, "digest": digestOf(content), "size": len(content)}
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobName(content []byte) string {
	return "blobs/sha256/" + strings.TrimPrefix(digestOf(content), "sha256:")
}

// tagOf is the part of a reference after the last colon of its last segment.
func tagOf(ref string) string {
	if _, tag, ok := strings.Cut(path.Base(ref), ":"); ok {
		return tag
	}
	return "latest"
}
