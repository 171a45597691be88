package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/util/wait"
)

// proxiesEnv makes this program the proxies of a cluster.
const proxiesEnv = "HOLDFAST_ROBUSTNESS_PROXIES"

// order tells the proxies what to do, and answer what came of it.
type order struct {
	ID int
	// Do is one of the constants below.
	Do   string
	Link string
	// To is where a new link leads.
	To string `json:",omitempty"`
	// Toxic is toxiproxy's description of one.
	Toxic json.RawMessage `json:",omitempty"`
}

type answer struct {
	// ID is that of the order; 0: the proxies cannot go on, and Problem says why.
	ID      int
	Address string `json:",omitempty"`
	Problem string `json:",omitempty"`
}

const (
	doOpen = "open"
	doAdd  = "add"
	doHeal = "heal"
)

// Child makes the process the proxies of a cluster if it was started for that, and returns false otherwise.
func Child() (bool, error) {
	if _, ok := os.LookupEnv(proxiesEnv); !ok {
		return false, nil
	}
	return true, serveProxies(os.Stdin, os.Stdout)
}

// proxies are what serveProxies keeps.
type proxies struct {
	server *toxiproxy.ApiServer
	// replacing is held while a link gets another proxy.
	replacing sync.Mutex

	mu    sync.Mutex
	out   *json.Encoder
	links map[string]*toxiproxy.Proxy
}

// serveProxies carries out orders, each in a goroutine of its own: one that takes long must not hold up the rest.
func serveProxies(in io.Reader, out io.Writer) error {
	p := &proxies{out: json.NewEncoder(out), links: map[string]*toxiproxy.Proxy{}}
	p.server = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.New(alarm{p}).Level(zerolog.WarnLevel))
	for orders := json.NewDecoder(in); ; {
		var o order
		if err := orders.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read an order: %w", err)
		}
		if o.Do == doOpen {
			p.answer(p.open(&o)) // orders about the link come after it
			continue
		}
		go func() { p.answer(p.carryOut(&o)) }()
	}
}

func (p *proxies) answer(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(a) // nobody is there to hear it otherwise
}

func (p *proxies) open(o *order) answer {
	proxy := toxiproxy.NewProxy(p.server, o.Link, "127.0.0.1:0", o.To)
	if err := proxy.Start(); err != nil {
		return answer{ID: o.ID, Problem: err.Error()}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[o.Link] = proxy
	return answer{ID: o.ID, Address: proxy.Listen}
}

// of is the proxy of a link.
func (p *proxies) of(link string) *toxiproxy.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.links[link]
}

func (p *proxies) carryOut(o *order) answer {
	proxy := p.of(o.Link)
	a := answer{ID: o.ID}
	switch {
	case proxy == nil:
		a.Problem = "there is no such link"
	case o.Do == doAdd:
		// Two faults at a time may want the same of a link.
		if _, err := proxy.Toxics.AddToxicJson(bytes.NewReader(o.Toxic)); err != nil && !errors.Is(err, toxiproxy.ErrToxicAlreadyExists) {
			a.Problem = err.Error()
		}
	case o.Do == doHeal:
		if err := p.heal(o.Link, proxy); err != nil {
			a.Problem = err.Error()
		}
	default:
		a.Problem = fmt.Sprintf("%q is not known", o.Do)
	}
	return a
}

// healPatience is how long a proxy may take to drop its toxics, or to give up its port.
const healPatience = 3 * time.Second

// heal drops the toxics of a link. Toxiproxy waits for a connection whose far end does not read to take what is delayed on it, five seconds
// a piece or for ever (its issue 558); then another proxy takes the place of the link's. What is on the former one stays as it is.
func (p *proxies) heal(link string, proxy *toxiproxy.Proxy) error {
	done := make(chan struct{})
	go func() {
		proxy.Toxics.ResetToxics(context.Background())
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(healPatience):
	}
	p.replacing.Lock()
	defer p.replacing.Unlock()
	if p.of(link) != proxy {
		return nil // another order to heal it has been here
	}
	go proxy.Stop() // which closes the listener at once, and then waits as well
	var problem error
	err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, healPatience, true, func(context.Context) (bool, error) {
		next := toxiproxy.NewProxy(p.server, link, proxy.Listen, proxy.Upstream)
		if problem = next.Start(); problem != nil {
			return false, nil // the listener is not closed yet
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.links[link] = next
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("another proxy in its place: %w", problem)
	}
	return nil
}

// alarm tells from what a proxy logs that it has stopped to accept connections, which it does for good.
type alarm struct{ of *proxies }

func (a alarm) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Error while accepting client")) {
		a.of.answer(answer{Problem: string(line)})
	}
	return len(line), nil
}
