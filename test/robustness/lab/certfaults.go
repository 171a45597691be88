package lab

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// soon is how long a certificate is valid that is to expire: the least there is, since certificates know no parts of a second.
const soon = time.Second

func certificateFaults() []Fault {
	return []Fault{
		{"replica-certificate-expired", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			// It shows the certificate to clients and replicas that call it, and to replicas that it calls.
			r := c.anyReplica(rng)
			return expired(ctx, lasts, r.server, append(c.linksOf(func(r *Replica) []*Link { return []*Link{r.Peers} }), r.Clients))
		}},
		{"clients-certificate-expired", func(ctx context.Context, c *Cluster, _ *rand.Rand, lasts time.Duration) error {
			return expired(ctx, lasts, c.clients, c.linksOf(func(r *Replica) []*Link { return []*Link{r.Clients} }))
		}},
		{"etcd-client-certificate-expired", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			r := c.anyReplica(rng)
			return expired(ctx, lasts, r.client, r.Etcd)
		}},
		{"etcd-certificate-expired", func(ctx context.Context, c *Cluster, rng *rand.Rand, lasts time.Duration) error {
			i := rng.IntN(len(c.Members))
			return expired(ctx, lasts, c.Members[i].party, c.linksOf(func(r *Replica) []*Link { return r.Etcd[i : i+1] }))
		}},
		{"certificates-rotated", rotated},
	}
}

// parties are all whose certificates expire and rotate.
func (c *Cluster) parties() []*party {
	all := []*party{c.clients}
	for _, r := range c.Replicas {
		all = append(all, r.server, r.client)
	}
	for _, m := range c.Members {
		all = append(all, m.party)
	}
	return all
}

// linksOf are the links that a function picks of each replica.
func (c *Cluster) linksOf(pick func(*Replica) []*Link) []*Link {
	var links []*Link
	for _, r := range c.Replicas {
		links = append(links, pick(r)...)
	}
	return links
}

// reset breaks the connections of links, once. A connection that is there outlives the certificates that it was made with.
func reset(ctx context.Context, links []*Link) error {
	return onLinks(ctx, 60*time.Millisecond, links, func(l *Link) error { return l.Reset(Downstream) })
}

// expired lets the certificate of a party expire while its connections are reset now and then, and gives it a new one in the end.
func expired(ctx context.Context, lasts time.Duration, p *party, links []*Link) error {
	if err := p.issue(soon); err != nil {
		return err
	}
	Sleep(ctx, soon)
	err := repeatedly(ctx, lasts, links, func(l *Link) error { return l.Reset(Downstream) })
	return errors.Join(err, p.issue(forLong))
}

// rotated gives everybody new certificates, and the lease service and its clients a new authority, in the three steps in which nobody ever
// refuses anybody: all believe both, all get certificates of the new one, all believe only that. etcd reads its authority once, so that stays.
func rotated(ctx context.Context, c *Cluster, _ *rand.Rand, lasts time.Duration) error {
	c.rotation.Lock()
	defer c.rotation.Unlock()
	former := c.clients.issuer
	next, err := newAuthority("service")
	if err != nil {
		return err
	}
	var ofService []*party
	for _, p := range c.parties() {
		if p.issuer == former {
			ofService = append(ofService, p)
		}
	}
	all := c.linksOf((*Replica).links)
	step := func(on []*party, do func(*party) error) {
		for _, p := range on {
			err = errors.Join(err, do(p))
		}
		Sleep(ctx, lasts/6)
		err = errors.Join(err, reset(ctx, all))
		Sleep(ctx, lasts/6)
	}
	step(ofService, func(p *party) error { return p.believe(former, next) })
	for _, p := range ofService {
		p.moveTo(next)
	}
	step(c.parties(), func(p *party) error { return p.issue(forLong) })
	step(ofService, func(p *party) error { return p.believe(next) })
	return err
}
