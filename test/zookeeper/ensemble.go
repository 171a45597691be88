package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// TB is what of a *testing.T the package uses; TestMain and benchmarks bring their own.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// startTimeout bounds the start of a server: a Java process on a machine that is busy with other tests.
const startTimeout = 90 * time.Second

// Ensemble is a number of servers that serve one tree. It is not safe for concurrent use.
type Ensemble struct {
	tb      TB
	servers []*Server
}

// Start starts one server (standalone) or an ensemble of several, waits until it serves, and stops it with the test.
func Start(tb TB, count int) *Ensemble {
	tb.Helper()
	e := &Ensemble{tb: tb}
	if err := e.start(tb.TempDir(), count); err != nil {
		tb.Fatalf("start %d ZooKeeper servers: %v", count, err)
	}
	return e
}

func (e *Ensemble) start(dir string, count int) error {
	ports, err := freePorts(3 * count)
	if err != nil {
		return err
	}
	var peers strings.Builder
	if count > 1 {
		for i := range count {
			fmt.Fprintf(&peers, "server.%d=127.0.0.1:%d:%d\n", i+1, ports[3*i+1], ports[3*i+2])
		}
	}
	for i := range count {
		server := &Server{
			id: i + 1, dir: filepath.Join(dir, fmt.Sprintf("zookeeper-%d", i+1)),
			address: fmt.Sprintf("127.0.0.1:%d", ports[3*i]), peers: peers.String(),
		}
		if err := server.configure(); err != nil {
			return err
		}
		e.servers = append(e.servers, server)
		if err := server.launch(); err != nil {
			return err
		}
		e.tb.Cleanup(server.stop)
	}
	for _, server := range e.servers {
		if err := server.wait(startTimeout); err != nil {
			return err
		}
	}
	return nil
}

// ConnectString names all servers.
func (e *Ensemble) ConnectString() string {
	var hosts []string
	for _, server := range e.servers {
		hosts = append(hosts, server.address)
	}
	return strings.Join(hosts, ",")
}

// Server returns the server of an index from 0.
func (e *Ensemble) Server(index int) *Server { return e.servers[index] }

// Leader returns the server that leads, and waits for one to be elected. A standalone server leads.
func (e *Ensemble) Leader() *Server {
	e.tb.Helper()
	deadline := time.Now().Add(startTimeout)
	for time.Now().Before(deadline) {
		for _, server := range e.servers {
			if mode := server.Mode(); mode == "leader" || mode == "standalone" {
				return server
			}
		}
		pause()
	}
	e.tb.Fatalf("no leader was elected within %s", startTimeout)
	return nil
}

// Followers returns the servers that follow.
func (e *Ensemble) Followers() []*Server {
	leader := e.Leader()
	var out []*Server
	for _, server := range e.servers {
		if server != leader {
			out = append(out, server)
		}
	}
	return out
}

// pause is the pace of polling a server's state, which it offers no other way.
func pause() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	<-ctx.Done()
}

// freePorts returns ports that nobody listens on, all different.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// ask sends one of the server's four-letter words.
func ask(address, word string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// tail is the end of a file, for messages about a server that failed.
func tail(path string) string {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "(nothing was logged)"
	}
	if len(content) > 2000 {
		content = content[len(content)-2000:]
	}
	return string(content)
}
