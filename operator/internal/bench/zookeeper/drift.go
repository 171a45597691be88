package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// driftRounds is the number of znodes that are changed by hand, one after another.
const driftRounds = 500

// correctable bounds the wait for one correction.
const correctable = 30 * time.Second

// measureDrift changes znodes by hand and takes the time until each is as declared again; in turn, that of a set and a get of
// a znode that nobody keeps. Both are made, and the correction is seen, by the same bare client.
func (s *stand) measureDrift(ctx context.Context, address string, r *report) error {
	conn, err := bareClient(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	bare := zk.DigestACL(zk.PermAll, credential.User, credential.Password)
	if _, err := conn.Create("/raw", payload, 0, bare); err != nil {
		return err
	}
	declared := strings.Repeat("x", len(payload))
	var corrected, raw []time.Duration
	for i := range driftRounds {
		begin := time.Now()
		if _, err := conn.Set("/raw", payload, -1); err != nil {
			return err
		}
		if _, _, err := conn.Get("/raw"); err != nil {
			return err
		}
		raw = append(raw, time.Since(begin))
		begin = time.Now()
		if err := changeAndWait(ctx, conn, fmt.Sprintf("/operator/n%d", i%s.objects), declared); err != nil {
			return err
		}
		corrected = append(corrected, time.Since(begin))
	}
	for _, p := range []int{50, 99} {
		r.add(fmt.Sprintf("a raw set and get, p%d", p), milliseconds(percentile(raw, p)), "ms")
		r.add(fmt.Sprintf("drift to corrected, p%d", p), milliseconds(percentile(corrected, p)), "ms")
	}
	r.add("drift to corrected against a raw set and get, p50", ratio(percentile(corrected, 50), percentile(raw, 50)), "x")
	r.add("drift to corrected against a raw set and get, p99", ratio(percentile(corrected, 99), percentile(raw, 99)), "x")
	r.add("drift to corrected against the mean of a poll each 30 s, p99", ratio(percentile(corrected, 99), 15*time.Second), "x")
	return nil
}

// changeAndWait changes a znode, and returns when it is as declared. It is told of the correction, and asks for nothing
// meanwhile: asking in a loop would take the processor from whoever corrects.
func changeAndWait(ctx context.Context, conn *zk.Conn, path, declared string) error {
	if _, err := conn.Set(path, []byte("by hand"), -1); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, correctable)
	defer cancel()
	for {
		data, _, changed, err := conn.GetW(path)
		if err != nil {
			return err
		}
		if string(data) == declared {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the znode %s, changed by hand, is not as declared after %s", path, correctable)
		}
	}
}

func percentile(list []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)-1)*percent/100]
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }
