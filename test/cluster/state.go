package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const stateVersion = 1

// state is what a cluster remembers between commands.
type state struct {
	Version int `json:"version"`
	// BootID is the boot in which the processes were started.
	BootID          string              `json:"bootID"`
	BinDir          string              `json:"binDir"`
	Nodes           int                 `json:"nodes"`
	FastNodeFailure bool                `json:"fastNodeFailure,omitempty"`
	NetworkPolicy   string              `json:"networkPolicy,omitempty"`
	Machines        map[string]*machine `json:"machines"`
	Forwards        []*forward          `json:"forwards,omitempty"`
	Images          []image             `json:"images,omitempty"`
	// ImagesFrom is the bin folder that the cluster's own images were made from.
	ImagesFrom string `json:"imagesFrom,omitempty"`
}

// machine is one set of namespaces and what runs in it.
type machine struct {
	Init       Process            `json:"init"`
	Components map[string]Process `json:"components"`
	// Images holds the content hashes of the archives that this node's containerd has.
	Images map[string]bool `json:"images,omitempty"`
}

// forward is a listener on 127.0.0.1 whose connections go on into the cluster.
type forward struct {
	Target  string  `json:"target"`
	Listen  string  `json:"listen"`
	Process Process `json:"process"`
}

// image is one archive that every node has or will have.
type image struct {
	Refs []string `json:"refs"`
	// SHA256 is the hash of the archive's content and the name of its file.
	SHA256 string `json:"sha256"`
}

func newState() *state {
	return &state{Version: stateVersion, Machines: map[string]*machine{}}
}

// machine returns the record of a machine, made when there is none.
func (s *state) machine(name string) *machine {
	m := s.Machines[name]
	if m == nil {
		m = &machine{Components: map[string]Process{}, Images: map[string]bool{}}
		s.Machines[name] = m
	}
	return m
}

// forgetProcesses drops every recorded process: those of an earlier boot ended with it.
func (s *state) forgetProcesses() {
	for _, m := range s.Machines {
		m.Init, m.Components = Process{}, map[string]Process{}
	}
	for _, f := range s.Forwards {
		f.Process = Process{}
	}
}

func loadState(file string) (*state, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := newState()
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("state file %s: %w", file, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("state file %s: version %d, this program knows %d: take the cluster down with the program that made it", file, s.Version, stateVersion)
	}
	for _, m := range s.Machines {
		if m.Components == nil {
			m.Components = map[string]Process{}
		}
		if m.Images == nil {
			m.Images = map[string]bool{}
		}
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	if s.BootID != boot {
		s.forgetProcesses()
		s.BootID = boot
	}
	return s, nil
}

// save replaces the file in one step, so that a reader, or the next command after a crash, finds
// the old state or the new one.
func (s *state) save(file string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return writeFile(file, append(b, '\n'), 0o600)
}

// writeFile writes a file through a temporary one and a rename.
func writeFile(file string, content []byte, mode os.FileMode) error {
	tmp := file + ".new"
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

// lockFolder takes the cluster's lock, waiting until ctx ends. Commands that change the cluster
// hold it; it goes with the process, so a killed command leaves no lock behind.
func lockFolder(ctx context.Context, folder string) (unlock func(), err error) {
	file := filepath.Join(folder, "lock")
	for {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && sameFile(f, file) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", file, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another command holds %s: %w", file, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// sameFile says whether the open file is still the one at path: `down` removes the folder while
// others wait for its lock.
func sameFile(f *os.File, path string) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}
