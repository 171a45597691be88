package testkit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Assets is the environment variable that names the folder with the binaries etcd and kube-apiserver.
const Assets = "KUBEBUILDER_ASSETS"

// startDeadline bounds the start of the API server, which takes about five seconds on a machine that is not busy.
const startDeadline = 2 * time.Minute

// Environment is a real API server on a real etcd, with no controllers.
type Environment struct {
	// Config connects to it as an administrator.
	Config *rest.Config
	server *envtest.Environment
	// One connection and one discovery for all worlds.
	http   *http.Client
	mapper meta.RESTMapper
}

// Main is the body of a TestMain: it starts one environment for the tests of a package, sets *env, runs them, and
// stops it. The definitions are installed first. It returns the exit code.
func Main(m *testing.M, env **Environment, crds ...*apiextensionsv1.CustomResourceDefinition) int {
	started, err := Start(crds...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*env = started
	code := m.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Start starts an environment and installs the definitions. The caller stops it.
func Start(crds ...*apiextensionsv1.CustomResourceDefinition) (*Environment, error) {
	if os.Getenv(Assets) == "" {
		return nil, errors.New(Assets + " is not set: it names the folder with etcd and kube-apiserver; tools/build.sh kubernetes builds them and prints that folder")
	}
	server := &envtest.Environment{
		CRDs:                     crds,
		ControlPlaneStartTimeout: startDeadline,
		ControlPlaneStopTimeout:  startDeadline,
	}
	config, err := server.Start()
	if err != nil {
		return nil, fmt.Errorf("start the API server from %s: %w", os.Getenv(Assets), errors.Join(err, server.Stop()))
	}
	// Tests make their requests one after another; client-side limits would only make them wait.
	config.QPS = -1
	// controller-runtime's own logger complains when nobody sets it, at some later time, into some test's output.
	ctrl.SetLogger(logr.Discard())
	env := &Environment{Config: config, server: server}
	if env.http, err = rest.HTTPClientFor(config); err == nil {
		env.mapper, err = apiutil.NewDynamicRESTMapper(config, env.http)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", errors.Join(err, server.Stop()))
	}
	return env, nil
}

// Stop stops the processes and removes their files.
func (e *Environment) Stop() error {
	if err := e.server.Stop(); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return nil
}

// Context returns a context that ends with the test, and after a deadline that no test should come near.
func Context(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(tb.Context(), startDeadline)
	tb.Cleanup(cancel)
	return ctx
}
