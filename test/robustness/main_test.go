// Package robustness_test runs lease services under faults and checks every history; see docs/robustness.md.
package robustness_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/test/robustness/lab"
	"github.com/holdfast-io/holdfast/test/robustness/load"
)

var (
	seed     = flag.Uint64("robustness.seed", 1, "the schedule of faults and what clients do are drawn from this")
	runs     = flag.Int("robustness.runs", 4, "number of faulted runs")
	duration = flag.Duration("robustness.duration", 0, "start new runs for this long, whatever their number; 0: as many as -robustness.runs says")
	long     = flag.Bool("robustness.long", false, "whether tests that have a short form run in the long one")
	clusters = flag.Int("robustness.clusters", 1, "number of clusters that runs are made on at a time")
	only     = flag.String("robustness.faults", "", "draw only from these faults, divided by commas; empty: from all")
	failures = flag.String("robustness.failures", "", "folder for the histories that cannot be explained; empty: none are kept")
)

func TestMain(m *testing.M) {
	flag.Parse()
	for _, child := range []func() (bool, error){lab.Child, load.Child} {
		is, err := child()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if is {
			return
		}
	}
	os.Exit(m.Run())
}

var binariesOnce = sync.OnceValues(func() (lab.Binaries, error) {
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		return lab.Binaries{}, fmt.Errorf("KUBEBUILDER_ASSETS is not set; it must name the folder of etcd (tools/build.sh kubernetes prints it)")
	}
	// Beside the test binary, in the folder that go test removes.
	service := filepath.Join(filepath.Dir(os.Args[0]), "lease-service")
	build := exec.Command("go", "build", "-o", service, "github.com/holdfast-io/holdfast/operator/cmd/lease-service")
	if out, err := build.CombinedOutput(); err != nil {
		return lab.Binaries{}, fmt.Errorf("build the lease service: %w\n%s", err, out)
	}
	return lab.Binaries{Etcd: filepath.Join(assets, "etcd"), LeaseService: service}, nil
})

// besideOthers lets a test run beside others in the short form, where nothing is measured.
func besideOthers(t *testing.T) {
	t.Helper()
	if !*long {
		t.Parallel()
	}
}

// startCluster starts a cluster of three replicas that ends with the test.
func startCluster(t *testing.T) *lab.Cluster {
	t.Helper()
	files := uint64(256)
	if *long {
		files = 1024
	}
	require.NoError(t, lab.RaiseFileLimit(files))
	binaries, err := binariesOnce()
	require.NoError(t, err)
	began := time.Now()
	c, err := lab.Start(t.Context(), t.TempDir(), binaries, 3)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	t.Logf("the cluster serves after %s", time.Since(began).Round(time.Millisecond))
	return c
}
