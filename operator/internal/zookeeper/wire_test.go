package zookeeper

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counted counts the writes to a connection.
type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// piped is a wire whose other end takes nothing until it is read.
func piped(t *testing.T, patience time.Duration) (*wire, *counted, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	conn := &counted{Conn: near}
	w := newWire(conn, time.Second, patience)
	t.Cleanup(func() {
		_ = w.Close()
		_ = far.Close()
	})
	return w, conn, far
}

func TestWhatWaitsIsWrittenTogetherAndInOrder(t *testing.T) {
	w, conn, far := piped(t, time.Minute)
	const count = 1000
	for i := range uint32(count) {
		n, err := w.Write(binary.BigEndian.AppendUint32(nil, i))
		require.NoError(t, err)
		require.Equal(t, 4, n)
	}
	got := make([]byte, 4*count)
	_, err := io.ReadFull(far, got)
	require.NoError(t, err)
	for i := range uint32(count) {
		require.Equal(t, i, binary.BigEndian.Uint32(got[4*i:]))
	}
	// The first alone, for nothing else was there, and the rest when that was taken.
	require.LessOrEqual(t, conn.writes.Load(), int64(3))
}

func TestAWriteThatFailsEndsTheWire(t *testing.T) {
	w, _, _ := piped(t, 20*time.Millisecond)
	_, err := w.Write([]byte("never taken"))
	require.NoError(t, err)
	_, err = w.Read(make([]byte, 1))
	require.Error(t, err, "who reads hears of it")
	require.Eventually(t, func() bool {
		_, err = w.Write([]byte("x"))
		return err != nil
	}, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestWhoWritesMoreThanIsTakenWaitsUntilTheEnd(t *testing.T) {
	w, _, _ := piped(t, time.Minute)
	large := bytes.Repeat([]byte("x"), mostUnwritten+1)
	for range 2 { // one is being written, and one waits
		_, err := w.Write(large)
		require.NoError(t, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.Write([]byte("x"))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, w.Close())
	require.ErrorIs(t, <-done, net.ErrClosed)
}

// A server that accepts a connection and says nothing has as long as it takes to answer the connect request, whatever deadline
// the library sets; afterwards the library's deadlines hold.
func TestTheAnswerToTheConnectRequestIsNotAwaitedForLong(t *testing.T) {
	w, _, far := piped(t, time.Minute)
	w.limit = 50 * time.Millisecond
	require.NoError(t, w.SetReadDeadline(time.Now().Add(time.Hour)))
	begin := time.Now()
	_, err := w.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Less(t, time.Since(begin), 10*time.Second)

	require.NoError(t, w.SetReadDeadline(time.Time{}))
	go func() { _, _ = far.Write(make([]byte, connectResponse)) }()
	_, err = io.ReadFull(w, make([]byte, connectResponse))
	require.NoError(t, err)
	require.NoError(t, w.SetReadDeadline(time.Time{}))
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(w, make([]byte, 1))
		read <- err
	}()
	select {
	case err := <-read:
		t.Fatalf("there is a deadline still: %v", err)
	case <-time.After(4 * w.limit):
	}
	_, err = far.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, <-read)
}
