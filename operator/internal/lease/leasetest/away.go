package leasetest

import (
	"net"
	"sync/atomic"
	"testing"
)

// Away stands for a peer that is away although something accepts connections in its place, as a proxy or a load balancer does.
type Away struct {
	// Address is where to connect.
	Address string
	tried   atomic.Int32
}

// NewAway makes a peer that is away, until the test ends: it closes connections at once, or if it is silent never says anything on them.
func NewAway(t testing.TB, silent bool) *Away {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	a := &Away{Address: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			a.tried.Add(1)
			if silent {
				t.Cleanup(func() { _ = conn.Close() })
			} else {
				_ = conn.Close()
			}
		}
	}()
	return a
}

// Tried returns how many connections were made so far.
func (a *Away) Tried() int { return int(a.tried.Load()) }
