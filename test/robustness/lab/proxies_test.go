package lab

import (
	"io"
	"log"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if child, err := Child(); child {
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// A link is healed although a connection on it takes nothing of what is delayed.
func TestALinkIsHealedWhoseFarEndDoesNotRead(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	accepted := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	links, err := startLinks(func(error) {})
	require.NoError(t, err)
	defer func() { require.NoError(t, links.close()) }()
	link, err := links.open("link", listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, link.Delay(Upstream, 1, 0))
	dial := func() net.Conn {
		conn, err := net.DialTimeout("tcp", link.Address(), 5*time.Second)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	full := dial()
	for err == nil { // until nothing more goes through
		require.NoError(t, full.SetWriteDeadline(time.Now().Add(time.Second)))
		_, err = full.Write(make([]byte, 1<<20))
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	mute := <-accepted
	defer mute.Close()

	healed := make(chan error)
	for range 2 { // two faults may have been of the same link
		go func() { healed <- link.Heal() }()
	}
	require.NoError(t, <-healed)
	require.NoError(t, <-healed)
	conn := dial()
	_, err = conn.Write([]byte("hello"))
	require.NoError(t, err)
	far := <-accepted
	defer far.Close()
	got := make([]byte, 5)
	require.NoError(t, far.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = io.ReadFull(far, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
}
