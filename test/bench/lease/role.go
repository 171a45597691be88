package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// roleVariable makes this program an etcd member: the environment variable has its etcdRole as JSON.
const roleVariable = "HOLDFAST_BENCH_ETCD"

const etcdStartTimeout = time.Minute

// etcdRole is one member of an etcd cluster. It runs in a process of its own, so that what it uses can be told from what
// the clients use.
type etcdRole struct {
	Name, Dir    string
	Client, Peer string // URLs
	Cluster      string // name=peer URL, ...
}

// runEtcd runs etcd as its own binary would with nothing but addresses given; all else has its default.
func runEtcd(ctx context.Context, encoded string) error {
	var r etcdRole
	if err := json.Unmarshal([]byte(encoded), &r); err != nil {
		return fmt.Errorf("%s: %w", roleVariable, err)
	}
	client, err := url.Parse(r.Client)
	if err != nil {
		return fmt.Errorf("etcd client URL: %w", err)
	}
	peer, err := url.Parse(r.Peer)
	if err != nil {
		return fmt.Errorf("etcd peer URL: %w", err)
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.LogLevel, cfg.InitialCluster, cfg.EnablePprof = r.Name, r.Dir, "fatal", r.Cluster, true
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case <-time.After(etcdStartTimeout):
		return errors.New("etcd does not become ready")
	case <-ctx.Done():
		return nil
	}
	select {
	case err := <-etcd.Err():
		return fmt.Errorf("etcd ended: %w", err)
	case <-ctx.Done():
		return nil
	}
}
