package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Down stops the cluster and removes all of it: processes, network namespaces, mounts, cgroups and
// the folder. It works on a cluster in any state, after an interrupted Up or a reboot as well.
func (c *Cluster) Down(ctx context.Context) error {
	return c.exclusive(ctx, func() error {
		group := errgroup.Group{}
		for _, f := range c.state.Forwards {
			group.Go(func() error { return f.Process.kill(ctx) })
		}
		group.Go(func() error { return c.stopMachines(ctx, c.recordedMachines()) })
		if err := group.Wait(); err != nil {
			return err
		}
		if err := c.deleteNetworks(); err != nil {
			return err
		}
		if err := removeCgroup(cgroupName(c.layout.folder), 10*time.Second); err != nil {
			return err
		}
		// Nothing of ours is mounted there any more. Removing the folder through a mount of
		// somebody else's would remove what is mounted.
		mounts, err := mountsBelow(c.layout.folder)
		if err != nil {
			return err
		}
		if err := unmountAll(mounts); err != nil {
			return err
		}
		return os.RemoveAll(c.layout.folder)
	})
}

// recordedMachines lists every machine that was ever started.
func (c *Cluster) recordedMachines() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.state.Machines {
		names = append(names, name)
	}
	return names
}

// stopMachines kills the machines' inits, and with them all that runs there. Etcd may lose what
// the API server would still have written; nothing acknowledged is lost.
func (c *Cluster) stopMachines(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var group errgroup.Group
	for _, name := range names {
		group.Go(func() error {
			if err := c.record(name).Init.kill(ctx); err != nil {
				return fmt.Errorf("stop machine %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// mountsBelow lists the mount points inside a folder, the deepest last.
func mountsBelow(folder string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(b), folder), nil
}

func parseMounts(mountinfo, folder string) []string {
	var mounts []string
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		const mountPoint = 4 // fifth field of proc_pid_mountinfo(5)
		if fields := strings.Fields(line); len(fields) > mountPoint {
			if path := unescape.Replace(fields[mountPoint]); strings.HasPrefix(path, folder+"/") {
				mounts = append(mounts, path)
			}
		}
	}
	return mounts
}

func unmountAll(mounts []string) error {
	var errs []error
	for i := len(mounts) - 1; i >= 0; i-- {
		if err := unix.Unmount(mounts[i], unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", mounts[i], err))
		}
	}
	return errors.Join(errs...)
}
