package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasestatus"
	"github.com/holdfast-io/holdfast/operator/lease/leasev1"
)

const serveTimeout = time.Minute

// programs are the paths of what is measured: this program, which is etcd too, and the lease-service binary.
type programs struct{ etcd, service string }

// stand is an etcd and a lease service on it, with connections of clients to both.
type stand struct {
	programs programs
	dir      string // for data
	etcd     []*process
	leader   *process // etcd's, at the start
	replicas []*process
	// toEtcd are the peers' connections, all to etcd's leader, which saves them the forwarding. toService has as many
	// to each replica.
	toEtcd    []*grpc.ClientConn
	toService [][]*grpc.ClientConn
	// owner is the replica of each shard.
	owner []int
	// borrowed says that the etcd is another stand's.
	borrowed bool
}

// connections is how many client processes a load stands for: each side has so many connections, and the clients share them.
const connections = 8

// newStand starts members of etcd and replicas of the service, with the data of etcd in a folder.
func newStand(ctx context.Context, programs programs, dir string, members, replicas int) (*stand, error) {
	s := &stand{programs: programs, dir: dir}
	if err := s.start(ctx, dir, members, replicas); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *stand) start(ctx context.Context, dir string, members, replicas int) error {
	if err := s.startEtcd(ctx, dir, members); err != nil {
		return err
	}
	if err := s.addReplicas(ctx, "/holdfast/", replicas); err != nil {
		return err
	}
	for range connections {
		conn, err := dial(s.leader.address)
		if err != nil {
			return err
		}
		s.toEtcd = append(s.toEtcd, conn)
	}
	return nil
}

// beside starts another service on the same etcd, under a prefix of its own.
func (s *stand) beside(ctx context.Context, prefix string, replicas int) (*stand, error) {
	other := &stand{programs: s.programs, etcd: s.etcd, leader: s.leader, toEtcd: s.toEtcd, borrowed: true}
	if err := other.addReplicas(ctx, prefix, replicas); err != nil {
		return nil, errors.Join(err, other.stop())
	}
	return other, nil
}

func dial(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return conn, nil
}

func (s *stand) startEtcd(ctx context.Context, dir string, members int) error {
	roles := make([]etcdRole, members)
	var cluster []string
	for i := range roles {
		free, err := freeAddresses(ctx, 2)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("etcd-%d", i)
		roles[i] = etcdRole{Name: name, Dir: filepath.Join(dir, name), Client: "http://" + free[0], Peer: "http://" + free[1]}
		cluster = append(cluster, name+"="+roles[i].Peer)
	}
	for _, r := range roles {
		r.Cluster = strings.Join(cluster, ",")
		encoded, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("start %s: %w", r.Name, err)
		}
		address := strings.TrimPrefix(r.Client, "http://")
		p := &process{name: r.Name, address: address, pprof: address, metrics: address}
		command := exec.CommandContext(ctx, s.programs.etcd)
		command.Env = append(os.Environ(), roleVariable+"="+string(encoded))
		if err := p.start(command); err != nil {
			return err
		}
		s.etcd = append(s.etcd, p)
	}
	return s.findLeader(ctx)
}

func (s *stand) findLeader(ctx context.Context) error {
	for _, p := range s.etcd {
		conn, err := dial(p.address)
		if err != nil {
			return err
		}
		status, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{}, grpc.WaitForReady(true))
		conn.Close()
		if err != nil {
			return fmt.Errorf("status of %s: %w", p.name, err)
		}
		if status.GetLeader() == status.GetHeader().GetMemberId() {
			s.leader = p
			return nil
		}
	}
	return errors.New("etcd has no leader")
}

// addReplicas starts replicas of a service under an etcd prefix, and makes them the stand's.
func (s *stand) addReplicas(ctx context.Context, prefix string, n int) error {
	var endpoints []string
	for _, p := range s.etcd {
		endpoints = append(endpoints, "http://"+p.address)
	}
	for i := range n {
		name := fmt.Sprintf("replica-%d", i)
		p, err := s.startReplica(ctx, name, "--etcd-prefix", prefix, "--etcd-endpoints", strings.Join(endpoints, ","))
		if err != nil {
			return err
		}
		s.replicas = append(s.replicas, p)
		var conns []*grpc.ClientConn
		for range connections {
			conn, err := dial(p.address, lease.DialOptions()...)
			if err != nil {
				return err
			}
			conns = append(conns, conn)
		}
		s.toService = append(s.toService, conns)
	}
	return s.awaitService(ctx, n)
}

// startReplica starts the binary with its defaults, but for addresses and what is given.
func (s *stand) startReplica(ctx context.Context, name string, flags ...string) (*process, error) {
	free, err := freeAddresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, address: free[0], metrics: free[1], pprof: free[2]}
	flags = append(flags, "--name", name, "--log-level", "warn",
		"--listen", p.address, "--metrics-listen", p.metrics, "--pprof-listen", p.pprof)
	return p, p.start(exec.CommandContext(ctx, s.programs.service, flags...))
}

// embedded starts a service that is its own etcd, as a stand whose peers are still those of s.
func (s *stand) embedded(ctx context.Context) (*stand, error) {
	other := &stand{programs: s.programs, etcd: s.etcd, leader: s.leader, toEtcd: s.toEtcd, borrowed: true}
	p, err := s.startReplica(ctx, "embedded", "--data-dir", filepath.Join(s.dir, "embedded"))
	if err != nil {
		return nil, err
	}
	other.replicas = []*process{p}
	conn, err := dial(p.address, lease.DialOptions()...)
	if err == nil {
		other.toService = [][]*grpc.ClientConn{slices.Repeat([]*grpc.ClientConn{conn}, connections)}
		err = other.awaitService(ctx, 1)
	}
	if err != nil {
		return nil, errors.Join(err, other.stop())
	}
	return other, nil
}

// awaitService waits until every shard is served and the replicas have equal shares, and learns who serves what.
func (s *stand) awaitService(ctx context.Context, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, serveTimeout)
	defer cancel()
	stream, err := leasestatus.NewLeaseStatusServiceClient(s.toService[0][0]).WatchStatus(ctx, &leasestatus.WatchStatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("status of the service: %w", err)
	}
	for {
		update, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("waiting until the service serves: %w", err)
		}
		st := update.GetStatus()
		balanced := st.GetReady() && len(st.GetReplicas()) == replicas
		for _, r := range st.GetReplicas() {
			balanced = balanced && int(r.GetShards()) >= int(st.GetShardsTotal())/replicas
		}
		if balanced {
			return s.learnOwners(ctx)
		}
	}
}

func (s *stand) learnOwners(ctx context.Context) error {
	got, err := leasev1.NewLeaseServiceClient(s.toService[0][0]).GetShardMap(ctx, &leasev1.GetShardMapRequest{})
	if err != nil {
		return fmt.Errorf("shard map: %w", err)
	}
	s.owner = make([]int, got.GetMap().GetShardCount())
	for _, member := range got.GetMap().GetMembers() {
		for i, p := range s.replicas {
			if p.address == member.GetAddress() {
				for _, shard := range member.GetShards() {
					s.owner[shard] = i
				}
			}
		}
	}
	return nil
}

// at is the replica that serves a name. The hash is that of ShardMap in the API.
func (s *stand) at(name string) int {
	h := fnv.New64a()
	h.Write([]byte(name))
	sum := h.Sum64()
	return s.owner[(sum^sum>>32)%uint64(len(s.owner))]
}

func (s *stand) stop() error {
	for _, conns := range s.toService {
		for _, conn := range conns {
			conn.Close()
		}
	}
	var errs []error
	for _, p := range s.replicas {
		errs = append(errs, p.stop())
	}
	if s.borrowed {
		return errors.Join(errs...)
	}
	for _, conn := range s.toEtcd {
		conn.Close()
	}
	for _, p := range s.etcd {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// usage is what a stand's servers have used at a moment.
type usage struct {
	service, etcd time.Duration
	entries       uint64 // of the raft log
}

func (u usage) since(before usage) usage {
	return usage{service: u.service - before.service, etcd: u.etcd - before.etcd, entries: u.entries - before.entries}
}

func (s *stand) usage(ctx context.Context) (usage, error) {
	var u usage
	for _, p := range s.replicas {
		used, err := p.cpu()
		if err != nil {
			return u, err
		}
		u.service += used
	}
	for _, p := range s.etcd {
		used, err := p.cpu()
		if err != nil {
			return u, err
		}
		u.etcd += used
	}
	status, err := etcdserverpb.NewMaintenanceClient(s.toEtcd[0]).Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return u, fmt.Errorf("raft index of etcd: %w", err)
	}
	u.entries = status.GetRaftIndex()
	return u, nil
}

// etcdCalls counts the messages that etcd has got from clients since it started, by the method of the call, on all members.
func (s *stand) etcdCalls(ctx context.Context) (map[string]int64, error) {
	calls := map[string]int64{}
	for _, p := range s.etcd {
		metrics, err := p.readMetrics(ctx)
		if err != nil {
			return nil, err
		}
		for name, value := range metrics {
			if strings.HasPrefix(name, "grpc_server_msg_received_total{") {
				_, rest, _ := strings.Cut(name, `grpc_method="`)
				method, _, _ := strings.Cut(rest, `"`)
				calls[method] += int64(value)
			}
		}
	}
	return calls, nil
}
