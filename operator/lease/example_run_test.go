package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
	"github.com/holdfast-io/holdfast/operator/lease"
)

// withService runs an example with a client of a service of its own.
func withService(example func(ctx context.Context, client *lease.Client)) {
	dir, err := os.MkdirTemp("", "lease-example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	address, done := make(chan string, 1), make(chan error, 1)
	opts := leasetest.Options("example")
	opts.DataDir, opts.Started = dir, func(a string) { address <- a }
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	go func() { done <- service.Run(ctx, opts) }()
	client, err := lease.Dial(<-address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	example(ctx, client)
	_ = client.Close()
	stop()
	if err := <-done; err != nil {
		log.Fatal(err)
	}
}

// At most three exports run at a time, and a big one counts as two.
func ExampleSemaphore() {
	withService(func(ctx context.Context, client *lease.Client) {
		exports := lease.NewSemaphore(client, "exports", 3)
		big, err := exports.Acquire(ctx, 2)
		if err != nil {
			log.Fatal(err)
		}
		_, err = exports.TryAcquire(ctx, 2)
		var held *lease.HeldError
		fmt.Println("room for another big one:", !errors.As(err, &held))
		small, err := exports.TryAcquire(ctx, 1)
		fmt.Println("room for a small one:", err == nil)
		_ = small.Release(ctx)
		_ = big.Release(ctx)
	})
	// Output:
	// room for another big one: false
	// room for a small one: true
}

// Many read a table while nobody rewrites it.
func ExampleRWLease() {
	withService(func(ctx context.Context, client *lease.Client) {
		table := lease.NewRWLease(client, "table")
		one, err := table.Read(ctx)
		if err != nil {
			log.Fatal(err)
		}
		two, err := table.Read(ctx)
		if err != nil {
			log.Fatal(err)
		}
		_, err = table.TryWrite(ctx)
		var held *lease.HeldError
		fmt.Println("refused while", len(refused(err, &held).Tokens), "read")
		_, _ = one.Release(ctx), two.Release(ctx)
		writer, err := table.Write(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("the writer's token is larger:", writer.Token() > two.Token())
		_ = writer.Release(ctx)
	})
	// Output:
	// refused while 2 read
	// the writer's token is larger: true
}

func refused(err error, held **lease.HeldError) *lease.HeldError {
	if !errors.As(err, held) {
		log.Fatal(err)
	}
	return *held
}

// Follow who leads.
func ExampleClient_Observe() {
	withService(func(ctx context.Context, client *lease.Client) {
		leader, err := client.Campaign(ctx, "scheduler", "replica-1", lease.WithValue([]byte("10.0.0.7:80")))
		if err != nil {
			log.Fatal(err)
		}
		for observed, err := range client.Observe(ctx, "scheduler") {
			if err != nil {
				log.Fatal(err)
			}
			if observed.Candidate == "" {
				fmt.Println("nobody leads")
				break
			}
			fmt.Println(observed.Candidate, "leads at", string(observed.Value))
			_ = leader.Release(ctx)
		}
	})
	// Output:
	// replica-1 leads at 10.0.0.7:80
	// nobody leads
}
