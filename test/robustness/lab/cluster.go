package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

const (
	// SessionTTL is how soon the other replicas take over from one that died. It is the least the service allows.
	SessionTTL = 2 * time.Second
	// startTimeout bounds how long anything may take to become ready.
	startTimeout = 30 * time.Second
	// Shards is how many shards the services have.
	Shards = 12
	// JournalChanges is so small that journals are settled all the time.
	JournalChanges = 40
	// etcdHeartbeat and etcdElection are etcd's timing, in milliseconds.
	etcdHeartbeat, etcdElection = "50", "500"
)

// Binaries are the programs that a cluster runs.
type Binaries struct{ Etcd, LeaseService string }

// Cluster is some replicas of a lease service on three etcd members, with mutual TLS between all of them and to clients. Its methods are for
// one goroutine at a time.
type Cluster struct {
	Members  []*Member
	Replicas []*Replica
	// Dir has the logs and the certificates.
	Dir string

	links *links
	// clients are all clients of the lease service. Its issuer is the service's authority, which is not that of etcd.
	clients *party
	// etcd is etcd's authority, admin a client of etcd.
	etcd  *authority
	admin *party
	// rotation lets one change of the service's authority end before the next begins.
	rotation sync.Mutex
	files    files
	stop     context.CancelFunc
	broken
}

// Member is an etcd member.
type Member struct {
	*Process
	Name, address string
	// Client calls it directly, past all proxies.
	Client *clientv3.Client
	party  *party
}

// Replica is a replica of the lease service.
type Replica struct {
	*Process
	Name string
	// Clients is the link that clients use, Peers that of other replicas; Etcd are its own links to the members.
	Clients, Peers *Link
	Etcd           []*Link
	// Direct is its own address, past all proxies.
	Direct string
	direct *grpc.ClientConn
	// server and client are who it is to those that call it, and to etcd.
	server, client *party
}

// links are all its links.
func (r *Replica) links() []*Link { return append([]*Link{r.Clients, r.Peers}, r.Etcd...) }

// Start starts a cluster and returns once it serves.
func Start(ctx context.Context, dir string, binaries Binaries, replicas int) (*Cluster, error) {
	c := &Cluster{Dir: dir, broken: broken{done: make(chan struct{})}}
	if err := c.start(ctx, binaries, replicas); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, binaries Binaries, replicas int) error {
	var err error
	if c.links, err = startLinks(c.fail); err != nil {
		return err
	}
	if err := c.addAuthorities(); err != nil {
		return err
	}
	if err := c.addMembers(binaries.Etcd, 3); err != nil {
		return err
	}
	for i := range replicas {
		if err := c.addReplica(binaries.LeaseService, i); err != nil {
			return err
		}
	}
	watching, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.watchFiles(watching)
	return c.Repair(ctx)
}

func (c *Cluster) addAuthorities() error {
	service, err := newAuthority("service")
	if err != nil {
		return err
	}
	if c.clients, err = newParty(c.Dir, "clients", service); err != nil {
		return err
	}
	if c.etcd, err = newAuthority("etcd"); err != nil {
		return err
	}
	c.admin, err = newParty(c.Dir, "admin", c.etcd)
	return err
}

func (c *Cluster) addMembers(binary string, n int) error {
	ports, err := freePorts(2 * n)
	if err != nil {
		return err
	}
	var initial []string
	for i := range n {
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i]))
	}
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		m := &Member{Name: name, address: fmt.Sprintf("127.0.0.1:%d", ports[2*i+1])}
		if m.party, err = newParty(c.Dir, name, c.etcd); err != nil {
			return err
		}
		peer, client, tls := fmt.Sprintf("http://127.0.0.1:%d", ports[2*i]), "https://"+m.address, m.party.files()
		// Without fsync a process that is killed loses nothing: the kernel has it. The machine is not what fails here.
		m.Process, err = NewProcess(filepath.Join(c.Dir, "etcd-"+name+".log"), binary, "--name", name, "--data-dir", filepath.Join(c.Dir, name),
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--listen-client-urls", client,
			"--advertise-client-urls", client, "--cert-file", tls.Cert, "--key-file", tls.Key, "--trusted-ca-file", tls.CA, "--client-cert-auth",
			"--initial-cluster", strings.Join(initial, ","), "--unsafe-no-fsync",
			"--heartbeat-interval", etcdHeartbeat, "--election-timeout", etcdElection, "--log-level", "error")
		if err != nil {
			return err
		}
		m.Client, err = clientv3.New(clientv3.Config{
			Endpoints: []string{client}, Logger: zap.NewNop(), DialTimeout: time.Second,
			DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(leasetls.ClientCredentials(c.admin.files()))},
		})
		if err != nil {
			return fmt.Errorf("client of etcd %s: %w", name, err)
		}
		c.Members = append(c.Members, m)
	}
	return nil
}

func (c *Cluster) addReplica(binary string, i int) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	r := &Replica{Name: fmt.Sprintf("r%d", i), Direct: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	if r.Clients, err = c.links.open(r.Name+"-clients", r.Direct); err != nil {
		return err
	}
	if r.Peers, err = c.links.open(r.Name+"-peers", r.Direct); err != nil {
		return err
	}
	var endpoints []string
	for _, m := range c.Members {
		link, err := c.links.open(r.Name+"-"+m.Name, m.address)
		if err != nil {
			return err
		}
		r.Etcd = append(r.Etcd, link)
		endpoints = append(endpoints, "https://"+link.Address())
	}
	if r.server, err = newParty(c.Dir, r.Name, c.clients.issuer); err != nil {
		return err
	}
	// Replicas know each other by one name, which is in the certificate of each.
	r.server.name = "leases"
	if err := r.server.issue(forLong); err != nil {
		return err
	}
	if r.client, err = newParty(c.Dir, r.Name+"-etcd", c.etcd); err != nil {
		return err
	}
	server, client := r.server.files(), r.client.files()
	r.Process, err = NewProcess(filepath.Join(c.Dir, r.Name+".log"), binary, "--listen", r.Direct, "--metrics-listen=", "--name", r.Name,
		"--tls-cert", server.Cert, "--tls-key", server.Key, "--tls-client-ca", server.CA,
		"--etcd-cert", client.Cert, "--etcd-key", client.Key, "--etcd-ca", client.CA,
		"--advertise", r.Peers.Address(), "--etcd-endpoints", strings.Join(endpoints, ","), "--etcd-prefix", "/robustness/",
		"--session-ttl", SessionTTL.String(), "--shards", fmt.Sprint(Shards), "--journal-changes", fmt.Sprint(JournalChanges), "--drain-timeout", "5s", "--log-level", "warn")
	if err != nil {
		return err
	}
	if r.direct, err = Dial(r.Direct, c.TLS()); err != nil {
		return err
	}
	c.Replicas = append(c.Replicas, r)
	return nil
}

// TLS is what clients of the lease service show and believe.
func (c *Cluster) TLS() leasetls.Files { return c.clients.files() }

// Dial connects to a lease service as its clients do.
func Dial(address string, tls leasetls.Files) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, append(lease.DialOptions(), grpc.WithTransportCredentials(leasetls.ClientCredentials(tls)))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

// Repair ends all faults, starts what does not run, and returns once every shard is served. When that cannot be done the cluster is broken.
func (c *Cluster) Repair(ctx context.Context) error {
	err := c.repair(ctx)
	if err != nil && ctx.Err() == nil {
		c.fail(err)
	}
	return err
}

func (c *Cluster) repair(ctx context.Context) error {
	for _, p := range c.parties() {
		if p.doubtful {
			if err := p.issue(forLong); err != nil {
				return err
			}
		}
	}
	for _, m := range c.Members {
		m.Signal(syscall.SIGCONT)
		if err := m.Start(); err != nil {
			return err
		}
	}
	for _, r := range c.Replicas {
		r.Signal(syscall.SIGCONT)
		for _, link := range r.links() {
			if err := link.Heal(); err != nil {
				return err
			}
		}
		if err := r.Start(); err != nil {
			return err
		}
	}
	if err := c.disarm(ctx); err != nil {
		return err
	}
	return c.AwaitServing(ctx)
}

// onAnyMember does something at one member after another until it succeeds, or fails with the last error.
func (c *Cluster) onAnyMember(ctx context.Context, do func(context.Context, *Member) error) error {
	var err error
	for range 10 {
		for _, m := range c.Members {
			call, cancel := context.WithTimeout(ctx, time.Second)
			err = do(call, m)
			cancel()
			if err == nil {
				return nil
			}
		}
	}
	return err
}

// AwaitServing returns once every replica is ready and every shard served, or fails after startTimeout.
func (c *Cluster) AwaitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	said := ""
	for {
		served, problem := int32(0), ""
		for _, r := range c.Replicas {
			status, err := r.Status(ctx)
			switch {
			case err != nil:
				problem += fmt.Sprintf("%s: %v; ", r.Name, err)
			case !status.GetReady():
				problem += fmt.Sprintf("%s is not ready: %s; ", r.Name, status.GetReason())
			}
			served += status.GetShards()
		}
		// Shards may be on their way from one replica to another between two answers: then the sum is wrong, and is taken again.
		if problem == "" && served == Shards {
			return nil
		}
		if ctx.Err() == nil { // else it was cut off
			said = fmt.Sprintf("%d of %d shards are served, %s", served, Shards, problem)
		}
		if !Sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s: %w", said, ctx.Err())
		}
	}
}

// Status asks a replica directly how it fares.
func (r *Replica) Status(ctx context.Context) (*leasestatus.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return leasestatus.NewLeaseStatusServiceClient(r.direct).GetStatus(ctx, &leasestatus.GetStatusRequest{})
}

// EtcdLeader returns the member that leads; nil when none of those that answer says so.
func (c *Cluster) EtcdLeader(ctx context.Context) *Member {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, m := range c.Members {
		if status, err := m.Client.Status(ctx, "https://"+m.address); err == nil && status.Leader == status.Header.GetMemberId() {
			return m
		}
	}
	return nil
}

// Close kills everything.
func (c *Cluster) Close() error {
	c.broken.expect()
	if c.stop != nil {
		c.stop()
	}
	var errs []error
	for _, r := range c.Replicas {
		r.Kill()
		errs = append(errs, r.direct.Close(), r.log.Close())
	}
	for _, m := range c.Members {
		m.Kill()
		errs = append(errs, m.Client.Close(), m.log.Close())
	}
	if c.links != nil {
		errs = append(errs, c.links.close())
	}
	return errors.Join(errs...)
}
