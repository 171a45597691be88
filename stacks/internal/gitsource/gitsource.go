// Package gitsource reads a folder of a Git repository at a revision, by the program git.
package gitsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// timeout bounds each command of git, a fetch over a network among them.
const timeout = 2 * time.Minute

// Files are the contents of files by path, relative to the folder they were read from, with slashes.
type Files map[string][]byte

// Remote reads the manifests in a folder of a remote repository, and the commit that the revision (a branch, tag,
// reference or commit) stands for. A folder that is not there has no files.
func Remote(ctx context.Context, url, revision, folder string) (files Files, commit string, err error) {
	dir, err := os.MkdirTemp("", "holdfast-git.")
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, args := range [][]string{{"init", "--quiet", "--bare"}, {"fetch", "--quiet", "--depth", "1", url, revision}} {
		if _, err := git(ctx, dir, args...); err != nil {
			return nil, "", fmt.Errorf("read %s at %s: %w", url, revision, err)
		}
	}
	commit, err = git(ctx, dir, "rev-parse", "FETCH_HEAD^{commit}")
	if err != nil {
		return nil, "", err
	}
	commit = strings.TrimSpace(commit)
	files, err = read(ctx, dir, commit, folder)
	return files, commit, err
}

// Local reads the manifests in a folder of the repository that dir is in, at a revision. The folder is relative to dir.
func Local(ctx context.Context, dir, revision, folder string) (Files, error) {
	// The revision is resolved first: git would take a misspelt one, and one that begins with "-", for something else.
	commit, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("revision %q is not known to the repository of %s: %w", revision, dir, err)
	}
	return read(ctx, dir, strings.TrimSpace(commit), folder)
}

// read reads from the objects of Git, not from a work tree: what is checked out may be converted, and a link would be followed.
func read(ctx context.Context, dir, commit, folder string) (Files, error) {
	listing, err := git(ctx, dir, "ls-tree", "-r", "-z", commit, "--", folder+"/")
	if err != nil {
		return nil, err
	}
	files := Files{}
	for line := range strings.SplitSeq(listing, "\x00") {
		// "<mode> <type> <object>\t<path>"
		attributes, name, ok := strings.Cut(line, "\t")
		fields := strings.Fields(attributes)
		if !ok || len(fields) != 3 {
			continue // the end
		}
		mode, kind, object := fields[0], fields[1], fields[2]
		if mode != modeLink && kind != "commit" && !IsManifest(name) {
			continue
		}
		content := ""
		if kind == "blob" {
			if content, err = git(ctx, dir, "cat-file", "blob", object); err != nil {
				return nil, err
			}
		}
		files[strings.TrimPrefix(name, folder+"/")] = []byte(content)
	}
	return files, nil
}

// modeLink is Git's mode of a symbolic link, whose content is where it points to. A link is read whatever it is called: it may
// stand for a folder of manifests. So is a submodule, without content.
const modeLink = "120000"

// manifestSuffixes are those of the files that Argo CD or Flux apply, or that change how they read a folder: a
// kustomization.yaml, a Chart.yaml, an .argocd-source.yaml among them.
var manifestSuffixes = []string{".yaml", ".yml", ".json", ".jsonnet"}

// IsManifest reports whether Argo CD or Flux may apply something because of a file of this name.
func IsManifest(name string) bool {
	return slices.Contains(manifestSuffixes, path.Ext(name)) || path.Base(name) == "Kustomization"
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	// It is run where nobody can answer a question.
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
