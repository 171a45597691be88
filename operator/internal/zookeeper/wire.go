package zookeeper

import (
	"bufio"
	"net"
	"sync"
	"time"
)

// connectResponse is the least number of bytes that a server answers a connect request with, its length included.
const connectResponse = 4 + 36

const (
	// readAhead is how much is read from the server at once.
	readAhead = 64 << 10
	// mostUnwritten is how much waits to be written at most. Whoever writes more waits.
	mostUnwritten = 4 << 20
)

// wire is a connection as the library sees it. It makes two things of the network cheaper and one shorter:
//
//   - The library makes one system call for each request and two for each answer. Here what it writes while a write is
//     under way is written together afterwards, and what has arrived is read together. A request that is alone goes out
//     at once. Order is kept, and an error of a write is that of the next one; the library closes the connection then, and
//     takes every request without an answer for one that may or may not have been carried out, as it does anyway.
//   - The library waits ten times the receive timeout for the answer to the connect request, and after its first four bytes
//     without any deadline, so that one server that accepts connections and then hangs would keep a client from the
//     other two for the better part of a minute. Here that answer has limit.
type wire struct {
	net.Conn
	// limit bounds the wait for the answer to the connect request, and patience that for the server to take what is written.
	limit, patience time.Duration
	// in and read, the number of bytes that the library got, are used by the one goroutine that reads and sets the read
	// deadlines.
	in   *bufio.Reader
	read int

	mu        sync.Mutex
	changed   *sync.Cond
	unwritten []byte
	// err is what ended the writing.
	err error
}

func newWire(conn net.Conn, limit, patience time.Duration) *wire {
	w := &wire{Conn: conn, limit: limit, patience: patience, in: bufio.NewReaderSize(conn, readAhead)}
	w.changed = sync.NewCond(&w.mu)
	go w.write()
	return w
}

// Read counts what has arrived.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	w.read += n
	return n, err
}

// SetReadDeadline shortens a deadline during the handshake.
func (w *wire) SetReadDeadline(t time.Time) error {
	if latest := time.Now().Add(w.limit); w.read < connectResponse && (t.IsZero() || t.After(latest)) {
		t = latest
	}
	return w.Conn.SetReadDeadline(t)
}

// SetWriteDeadline does nothing: each write to the network has a deadline of its own.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// Write takes what is to be written, and does not wait for that.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.unwritten) > mostUnwritten && w.err == nil {
		w.changed.Wait()
	}
	if w.err != nil {
		return 0, w.err
	}
	w.unwritten = append(w.unwritten, p...)
	w.changed.Broadcast()
	return len(p), nil
}

// write writes until the connection is closed or fails. A failure closes it, so that who reads hears of it as well.
func (w *wire) write() {
	var out []byte
	for {
		w.mu.Lock()
		for len(w.unwritten) == 0 && w.err == nil {
			w.changed.Wait()
		}
		if w.err != nil {
			w.mu.Unlock()
			return
		}
		out, w.unwritten = w.unwritten, out[:0]
		w.changed.Broadcast()
		w.mu.Unlock()
		err := w.Conn.SetWriteDeadline(time.Now().Add(w.patience))
		if err == nil {
			_, err = w.Conn.Write(out)
		}
		if err != nil {
			_ = w.end(err) // what was to be told is err
			return
		}
		if cap(out) > mostUnwritten {
			out = nil
		}
	}
}

// Close ends the connection. What was not written yet is not written any more.
func (w *wire) Close() error { return w.end(net.ErrClosed) }

func (w *wire) end(err error) error {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.changed.Broadcast()
	w.mu.Unlock()
	return w.Conn.Close()
}
