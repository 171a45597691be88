package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Direction is a direction on a link: Upstream are requests, Downstream answers.
type Direction string

// The directions.
const (
	Upstream   Direction = "upstream"
	Downstream Direction = "downstream"
)

// Link is a proxy on the way to an address.
type Link struct {
	proxy *toxiproxy.Proxy
}

// newLink makes a link to an address, host:port, on a port of its own.
func newLink(name, to string) (*Link, error) {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, name, "127.0.0.1:0", to)
	if err := proxy.Start(); err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	return &Link{proxy: proxy}, nil
}

// Address is where to connect.
func (l *Link) Address() string { return l.proxy.Listen }

func (l *Link) add(toxic string, direction Direction, attributes map[string]int64) error {
	data, err := json.Marshal(map[string]any{"type": toxic, "stream": direction, "attributes": attributes})
	if err != nil {
		return fmt.Errorf("toxic %s: %w", toxic, err)
	}
	// Two faults at a time may want the same of a link.
	if _, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader(data)); err != nil && !errors.Is(err, toxiproxy.ErrToxicAlreadyExists) {
		return fmt.Errorf("toxic %s on %s: %w", toxic, l.proxy.Name, err)
	}
	return nil
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
func (l *Link) Heal() { l.proxy.Toxics.ResetToxics(context.Background()) }

// Break closes all connections, and refuses new ones until Mend.
func (l *Link) Break() { l.proxy.Stop() }

// Mend ends Break.
func (l *Link) Mend() error {
	if err := l.proxy.Start(); err != nil {
		return fmt.Errorf("link %s: %w", l.proxy.Name, err)
	}
	return nil
}
