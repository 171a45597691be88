package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ownProgram is the path of a component that is this program: the starter's own, which needs no
// folder that its machine sees.
const ownProgram = "/proc/self/exe"

// volumeOpener lets pods of any user write to their volumes.
func (l layout) volumeOpener() component {
	return component{name: "volume-opener", path: ownProgram, args: []string{"open-volumes", l.volumes()}}
}

// OpenVolumes lets every user write to the folders in folder, those that are there and those that
// come, until ctx ends. The provisioner makes a volume's folder for root alone, and the kubelet
// leaves the owner of host paths as it is, fsGroup or not. A folder with something in it stays as
// it is: its mode may be its user's choice.
func OpenVolumes(ctx context.Context, folder string) error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	defer context.AfterFunc(ctx, func() { _ = events.Close() })()
	if _, err := unix.InotifyAddWatch(fd, folder, unix.IN_CREATE|unix.IN_ONLYDIR); err != nil {
		return fmt.Errorf("watch %s: %w", folder, err)
	}
	// The folder is read after each event, and not the event: there may be too many to be kept.
	for buffer := make([]byte, 1<<14); ; {
		if err := openUnused(folder); err != nil {
			return err
		}
		if _, err := events.Read(buffer); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("watch %s: %w", folder, err)
		}
	}
}

// openUnused opens the empty folders in folder to everybody.
func openUnused(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		volume := filepath.Join(folder, entry.Name())
		content, err := os.ReadDir(volume)
		if err == nil && len(content) == 0 {
			err = os.Chmod(volume, 0o777)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be deleted meanwhile
			return err
		}
	}
	return nil
}
