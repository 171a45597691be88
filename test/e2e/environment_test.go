//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// environment is what tools/dev/test-e2e.sh built for the tests.
type environment struct {
	repository                           string // the checkout
	kubeBin, netpolBin, ownBin           string // folders of binaries
	pulumiBin                            string // empty when pulumi is installed
	argocdBin, fluxBin                   string // folders of binaries and CRDs
	languagesBin                         string // what the tests of other languages need, and no others
	images                               string // folder of image archives
	operatorImage, leaseImage, etcdImage string
}

func loadEnvironment(t *testing.T) environment {
	t.Helper()
	get := func(name string) string {
		value := os.Getenv(name)
		require.NotEmptyf(t, value, "%s is not set: run the end-to-end tests by make test-e2e", name)
		return value
	}
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	return environment{
		repository:    repository,
		kubeBin:       get("HOLDFAST_KUBE_BIN"),
		netpolBin:     get("HOLDFAST_NETPOL_BIN"),
		ownBin:        get("HOLDFAST_BIN"),
		pulumiBin:     os.Getenv("HOLDFAST_PULUMI_BIN"),
		argocdBin:     get("HOLDFAST_ARGOCD_BIN"),
		fluxBin:       get("HOLDFAST_FLUX_BIN"),
		languagesBin:  os.Getenv("HOLDFAST_LANGUAGES_BIN"),
		images:        get("HOLDFAST_IMAGES"),
		operatorImage: get("HOLDFAST_OPERATOR_IMAGE"),
		leaseImage:    get("HOLDFAST_LEASE_IMAGE"),
		etcdImage:     get("HOLDFAST_ETCD_IMAGE"),
	}
}

// command is a program run to its end within a deadline.
type command struct {
	path    string
	args    []string
	dir     string
	env     []string // added to the environment of the test
	timeout time.Duration
}

// run returns what the command printed, and its error with that in the text.
func (c command) run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), c.env...)
	// A killed CLI must not keep the test waiting for plugins that inherited its output.
	cmd.WaitDelay = 5 * time.Second
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	return output.String(), err
}

// must runs the command and fails the test with its output when it fails.
func (c command) must(t *testing.T) string {
	t.Helper()
	start := time.Now()
	output, err := c.run(t.Context())
	require.NoErrorf(t, err, "%s %v:\n%s", c.path, c.args, output)
	t.Logf("%s %v took %s", filepath.Base(c.path), c.args, time.Since(start).Round(100*time.Millisecond))
	return output
}
