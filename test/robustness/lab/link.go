package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Direction is a direction on a link: Upstream are requests, Downstream answers.
type Direction string

// The directions.
const (
	Upstream   Direction = "upstream"
	Downstream Direction = "downstream"
)

// orderTimeout bounds how long a proxy may take for what it is told.
const orderTimeout = 15 * time.Second

// links are the proxies of a cluster, in a process of their own: whatever opens connections without end takes the files of that process, and
// not those of the tests, which must be able to say so.
type links struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	// broken is told why the proxies cannot go on.
	broken func(error)

	mu      sync.Mutex
	out     *json.Encoder
	last    int
	waiting map[int]chan answer
}

// startLinks starts this program once more. Its main function must call Child.
func startLinks(broken func(error)) (*links, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), proxiesEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the proxies: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start the proxies: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the proxies: %w", err)
	}
	l := &links{cmd: cmd, in: in, broken: broken, out: json.NewEncoder(in), waiting: map[int]chan answer{}}
	go l.receive(out)
	return l, nil
}

func (l *links) receive(from io.Reader) {
	for answers := json.NewDecoder(from); ; {
		var a answer
		if err := answers.Decode(&a); err != nil {
			l.broken(fmt.Errorf("the proxies are gone: %w", err))
			return
		}
		if a.ID == 0 {
			l.broken(fmt.Errorf("a proxy accepts no more connections: %s", a.Problem))
			continue
		}
		l.mu.Lock()
		got := l.waiting[a.ID]
		delete(l.waiting, a.ID)
		l.mu.Unlock()
		if got != nil {
			got <- a
		}
	}
}

// do has an order carried out.
func (l *links) do(o order) (answer, error) {
	got := make(chan answer, 1)
	l.mu.Lock()
	l.last++
	o.ID = l.last
	l.waiting[o.ID] = got
	err := l.out.Encode(o)
	l.mu.Unlock()
	if err != nil {
		return answer{}, fmt.Errorf("%s the link %s: %w", o.Do, o.Link, err)
	}
	timeout := time.NewTimer(orderTimeout)
	defer timeout.Stop()
	select {
	case a := <-got:
		if a.Problem != "" {
			return a, fmt.Errorf("%s the link %s: %s", o.Do, o.Link, a.Problem)
		}
		return a, nil
	case <-timeout.C:
		return answer{}, fmt.Errorf("%s the link %s: no answer within %s", o.Do, o.Link, orderTimeout)
	}
}

func (l *links) close() error {
	if err := l.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the proxies: %w", err)
	}
	_ = l.cmd.Wait() // it says that they were killed
	return nil
}

// Link is a proxy on the way to an address.
type Link struct {
	links         *links
	name, address string
}

// open makes a link to an address, host:port, on a port of its own.
func (l *links) open(name, to string) (*Link, error) {
	a, err := l.do(order{Do: doOpen, Link: name, To: to})
	return &Link{links: l, name: name, address: a.Address}, err
}

// Address is where to connect.
func (l *Link) Address() string { return l.address }

func (l *Link) add(toxic string, direction Direction, attributes map[string]int64) error {
	data, err := json.Marshal(map[string]any{"type": toxic, "stream": direction, "attributes": attributes})
	if err != nil {
		return fmt.Errorf("toxic %s: %w", toxic, err)
	}
	_, err = l.links.do(order{Do: doAdd, Link: l.name, Toxic: data})
	return err
}

// Cut makes what is sent in a direction vanish. Connections stay open, or are closed after some milliseconds if that is
// not 0.
func (l *Link) Cut(direction Direction, closeAfterMillis int64) error {
	return l.add("timeout", direction, map[string]int64{"timeout": closeAfterMillis})
}

// Delay delays what is sent in a direction.
func (l *Link) Delay(direction Direction, millis, jitter int64) error {
	return l.add("latency", direction, map[string]int64{"latency": millis, "jitter": jitter})
}

// Reset resets connections when something is sent in a direction.
func (l *Link) Reset(direction Direction) error {
	return l.add("reset_peer", direction, map[string]int64{"timeout": 0})
}

// Heal makes the link pass everything on again. Connections that lost data are closed.
func (l *Link) Heal() error {
	_, err := l.links.do(order{Do: doHeal, Link: l.name})
	return err
}
