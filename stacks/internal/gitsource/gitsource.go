// Package gitsource reads a folder of a Git repository at a revision, by the program git.
package gitsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// timeout bounds each command of git, a fetch over a network among them.
const timeout = 2 * time.Minute

// Files are the contents of files by path, relative to the folder they were read from, with slashes.
type Files map[string][]byte

// Remote reads the YAML files of a folder of a remote repository, and the commit that the revision (a branch, tag,
// reference or commit) stands for. A folder that is not there has no files.
func Remote(ctx context.Context, url, revision, folder string) (files Files, commit string, err error) {
	dir, err := os.MkdirTemp("", "holdfast-git.")
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, args := range [][]string{
		{"init", "--quiet"}, {"fetch", "--quiet", "--depth", "1", url, revision}, {"checkout", "--quiet", "FETCH_HEAD"},
	} {
		if _, err := git(ctx, dir, args...); err != nil {
			return nil, "", fmt.Errorf("read %s at %s: %w", url, revision, err)
		}
	}
	commit, err = git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return nil, "", err
	}
	files, err = readYAML(os.DirFS(filepath.Join(dir, filepath.FromSlash(folder))))
	return files, strings.TrimSpace(commit), err
}

// Local reads the YAML files of a folder of the repository that dir is in, at a revision. The folder is relative to dir.
func Local(ctx context.Context, dir, revision, folder string) (Files, error) {
	// The revision is resolved first: git would take a misspelt one, and one that begins with "-", for something else.
	commit, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if err != nil {
		return nil, fmt.Errorf("revision %q is not known to the repository of %s: %w", revision, dir, err)
	}
	commit = strings.TrimSpace(commit)
	names, err := git(ctx, dir, "ls-tree", "-r", "-z", "--name-only", commit, "--", folder+"/")
	if err != nil {
		return nil, err
	}
	files := Files{}
	for name := range strings.SplitSeq(strings.TrimRight(names, "\x00"), "\x00") {
		if path.Ext(name) != ".yaml" {
			continue
		}
		content, err := git(ctx, dir, "show", commit+":./"+name)
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(name, folder+"/")] = []byte(content)
	}
	return files, nil
}

func readYAML(folder fs.FS) (Files, error) {
	files := Files{}
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == "." {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		files[name], err = fs.ReadFile(folder, name)
		return err
	})
	return files, err
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
