package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if encoded, ok := os.LookupEnv(roleVariable); ok {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		exit(runEtcd(ctx, encoded))
		return
	}
	os.Exit(m.Run())
}

// TestBench takes every figure in a fraction of the usual time, and looks at those that count something: how long things
// take says nothing on a machine that does other things too.
func TestBench(t *testing.T) {
	dir := t.TempDir()
	programs, err := findPrograms(t.Context(), "", dir)
	require.NoError(t, err)
	b := &bench{
		plan: plan{
			rounds: 1, lasts: 200 * time.Millisecond, clients: []int{64}, expiring: 512, expireAfter: 2 * time.Second, sessions: 40, leasesEach: 10,
			liveFor: time.Second, members: []int{1},
		},
		programs: programs, log: t.Output(),
	}
	require.NoError(t, b.run(t.Context(), dir))

	figure := func(id, what string) float64 {
		for _, f := range b.figures {
			if f.ID == id && strings.Contains(f.What, what) {
				return f.Value.Median
			}
		}
		require.Fail(t, "there is no such figure", "%s %s", id, what)
		return 0
	}
	assert.Less(t, figure("L2", "by sessions"), 0.2, "acquires of many clients share their raft entries")
	assert.Less(t, figure("L2", "by unary calls"), 0.2)
	assert.Zero(t, figure("L6", "raft entries for"), "keepalives make no raft entries")
	assert.Zero(t, figure("L6", "raft entries while"))
	assert.Less(t, figure("L7", "raft entries"), 20.0, "leases that expire together share their raft entries")
	assert.Less(t, figure("L8", "calls of etcd"), 3.0, "thousands of reads make no calls of etcd; a session may be under renewal when it is counted")
	for _, id := range []string{"L1", "L3", "L4", "L5", "L9", "live"} {
		figure(id, "")
	}
}

func TestTable(t *testing.T) {
	r := &report{Figures: []*figure{{ID: "L2", What: "entries", Clients: 64, Etcd: 1, Value: newSpread([]float64{3, 1, 2}), Goal: atMost(2.5), Unit: count}}}
	assert.Contains(t, r.table(), "| L2 | entries | 64 | 1 | ≤ 2.5 | 2 (1 to 3) | met |")
}

func TestNumbers(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "0.0082": 0.00821, "1.30": 1.3, "12.3": 12.34, "1,234": 1234.4, "1,234,567": 1234567} {
		assert.Equal(t, want, number(v), fmt.Sprint(v))
	}
}
