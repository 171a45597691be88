package leasetest

import (
	"net"
	"sync/atomic"
	"testing"
)

// Link is a TCP proxy that can be cut so that packets vanish: connections stay open and nothing arrives.
type Link struct {
	// Address is where to connect.
	Address string
	down    atomic.Bool
}

// NewLink makes a link to an address, until the test ends.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	l := &Link{Address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go l.pipe(client, server)
			go l.pipe(server, client)
		}
	}()
	return l
}

// Cut makes everything vanish that is sent from now on.
func (l *Link) Cut() { l.down.Store(true) }

// Restore lets new data pass again. Connections that lost some are closed.
func (l *Link) Restore() { l.down.Store(false) }

func (l *Link) pipe(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 32<<10)
	lost := false
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if l.down.Load() {
			lost = true
			continue
		}
		if lost {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
