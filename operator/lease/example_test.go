package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/lease"
	"github.com/holdfast-io/holdfast/operator/lease/leasetls"
)

// Run something while holding a lease, and stop it when the lease is lost.
func ExampleClient_Acquire() {
	client, err := lease.Dial("leases.team-a.svc:7400", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	held, err := client.Acquire(context.Background(), "jobs/nightly", lease.WithTTL(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = held.Release(context.Background()) }()
	if err := nightly(held.Context(), held.Token()); err != nil {
		log.Print(err)
	}
}

// Take one of five permits, if one is free.
func ExampleClient_TryAcquire() {
	client, err := lease.Dial("leases.team-a.svc:7400", grpc.WithTransportCredentials(leasetls.ClientCredentials(leasetls.Files{
		Cert: "/etc/lease/tls.crt", Key: "/etc/lease/tls.key", CA: "/etc/lease/ca.crt",
	})))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	permit, err := client.TryAcquire(context.Background(), "exports", lease.Permits(1, 5))
	var held *lease.HeldError
	if errors.As(err, &held) {
		fmt.Println("all permits are taken; waiting:", held.Waiters)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = permit.Release(context.Background()) }()
}

// Keep many leases by one heartbeat.
func ExampleClient_NewSession() {
	client, err := lease.Dial("leases.team-a.svc:7400", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	session, err := client.NewSession(context.Background(), lease.WithTTL(15*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = session.Close(context.Background()) }()
	for _, shard := range []string{"orders/0", "orders/1", "orders/2"} {
		held, err := session.Acquire(context.Background(), shard)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			if err := nightly(held.Context(), held.Token()); err != nil {
				log.Print(err)
			}
		}()
	}
}

// Lead, and let go when somebody asks.
func ExampleClient_Campaign() {
	client, err := lease.Dial("leases.team-a.svc:7400", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	leader, err := client.Campaign(context.Background(), "scheduler", "replica-1", lease.WithValue([]byte("10.0.0.7:80")))
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-leader.Revoked():
		log.Print("asked to let go: ", leader.Revocation().Reason)
		_ = leader.Release(context.Background())
	case <-leader.Done():
		log.Print("not the leader any more: ", leader.Err())
	}
}

func nightly(ctx context.Context, token int64) error {
	fmt.Println("working with token", token)
	<-ctx.Done()
	return context.Cause(ctx)
}
