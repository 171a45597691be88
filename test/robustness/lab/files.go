package lab

import (
	"context"
	"os"
	"strconv"
	"sync"
	"time"
)

// filesEvery is how often open files are counted.
const filesEvery = 50 * time.Millisecond

// files are the most that processes had open at one time, connections included.
type files struct {
	mu   sync.Mutex
	most map[string]int
}

func (f *files) count(name string, pid int) {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return // it does not run
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most == nil {
		f.most = map[string]int{}
	}
	f.most[name] = max(f.most[name], len(entries))
}

// Names of what Files counts besides each member and replica, by their names.
const (
	FilesOfProxies = "proxies"
	FilesOfTests   = "tests"
)

// Files returns how many files each process had open at most since the last call. The proxies have each connection of a link twice; the
// tests are this process, with all the clusters that it has.
func (c *Cluster) Files() map[string]int {
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	most := c.files.most
	c.files.most = nil
	return most
}

func (c *Cluster) watchFiles(ctx context.Context) {
	for Sleep(ctx, filesEvery) {
		c.files.count(FilesOfTests, os.Getpid())
		c.files.count(FilesOfProxies, c.links.cmd.Process.Pid)
		for _, m := range c.Members {
			c.files.count(m.Name, m.pid())
		}
		for _, r := range c.Replicas {
			c.files.count(r.Name, r.pid())
		}
	}
}
