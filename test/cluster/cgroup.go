package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroupHierarchies lists the mount points of all cgroup hierarchies: one with version 2, one for
// each set of controllers with version 1.
func cgroupHierarchies() ([]string, error) {
	if isCgroup2(cgroupRoot) {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	var dirs []string
	for _, e := range entries { // links are second names of a hierarchy
		if dir := filepath.Join(cgroupRoot, e.Name()); e.IsDir() && exists(filepath.Join(dir, "cgroup.procs")) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

func isCgroup2(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && int64(s.Type) == unix.CGROUP2_SUPER_MAGIC
}

// createCgroup makes a cgroup, given by its path below the root, in every hierarchy, so that pods
// can be put below it.
func createCgroup(name string) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range hierarchies {
		dir := hierarchy
		for part := range strings.SplitSeq(name, "/") {
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("cgroup: %w", err)
			}
			if err := inheritLimits(parent, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// inheritLimits lets a new group be used: with version 1 a cpuset starts empty, and nothing can
// join it; with version 2 a group has the controllers that its parent hands down.
func inheritLimits(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if isCgroup2(dir) {
			break
		}
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not the cpuset hierarchy
		}
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
	if err != nil || len(strings.Fields(string(controllers))) == 0 {
		return nil // version 1
	}
	var enable []string
	for _, name := range strings.Fields(string(controllers)) {
		enable = append(enable, "+"+name)
	}
	file := filepath.Join(parent, "cgroup.subtree_control")
	if err := os.WriteFile(file, []byte(strings.Join(enable, " ")), 0); err != nil {
		return fmt.Errorf("cgroup controllers: %w", err)
	}
	return nil
}

// removeCgroup removes a cgroup with all below it from every hierarchy, then its parents as far as
// they are empty. The kernel lets go of a group a moment after its last process, so it is tried
// until the timeout.
func removeCgroup(name string, timeout time.Duration) error {
	hierarchies, err := cgroupHierarchies()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(timeout)
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, name)
		for err := removeTree(dir); err != nil; err = removeTree(dir) {
			if time.Now().After(deadline) {
				return fmt.Errorf("cgroup: %w", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		for dir = filepath.Dir(dir); dir != hierarchy; dir = filepath.Dir(dir) {
			if os.Remove(dir) != nil {
				break // in use by another node or cluster
			}
		}
	}
	return nil
}

// removeTree removes a cgroup's folder; the files in it are the kernel's and go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
