package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/crds"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
	"github.com/holdfast-io/holdfast/operator/internal/component"
	"github.com/holdfast-io/holdfast/operator/internal/config"
	"github.com/holdfast-io/holdfast/operator/internal/reconcile/testkit"
)

var env *testkit.Environment // set once, by TestMain

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, &env, crds.All()...)) }

// logs is an io.Writer that may be read while it is written.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// settings is a configuration for a namespace, on ports that were free a moment ago.
func settings(t *testing.T, namespace string) config.OperatorConfig {
	t.Helper()
	c := config.Default()
	c.Namespaces = []string{namespace}
	c.LeaderElection.Namespace = namespace
	c.Metrics.BindAddress, c.Health.BindAddress = freeAddress(t), freeAddress(t)
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func newNamespace(t *testing.T, c client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "operator-"}}
	if err := c.Create(testkit.Context(t), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(env.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(c.Scheme()); err != nil {
		t.Fatal(err)
	}
	return c
}

// operator is one that runs in the background.
type operator struct {
	logs   *logs
	cancel context.CancelFunc
	done   chan error
}

func start(t *testing.T, c config.OperatorConfig, components []component.Component) *operator {
	t.Helper()
	ctx, cancel := context.WithCancel(testkit.Context(t))
	o := &operator{logs: &logs{}, cancel: cancel, done: make(chan error, 1)}
	log, err := logger(o.logs, c.Log.Level)
	if err != nil {
		t.Fatal(err)
	}
	go func() { o.done <- run(ctx, options{config: c, rest: env.Config, log: log, components: components}) }()
	t.Cleanup(cancel)
	return o
}

// stop stops it, and returns what run returned and how long that took.
func (o *operator) stop(t *testing.T) (time.Duration, error) {
	t.Helper()
	o.cancel()
	from := time.Now()
	select {
	case err := <-o.done:
		return time.Since(from), err
	case <-testkit.Context(t).Done():
		t.Fatalf("the operator does not stop:\n%s", o.logs)
		return 0, nil
	}
}

// eventually waits until check returns nil.
func (o *operator) eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(testkit.Context(t), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-o.done:
			return false, fmt.Errorf("the operator ended: %w", errors.Join(err, last))
		default:
		}
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v\n%s", err, last, o.logs)
	}
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return string(body), nil
}

func TestOperatorServesWorksAndStops(t *testing.T) {
	c := newClient(t)
	namespace := newNamespace(t, c)
	conf := settings(t, namespace)
	conf.LeaseService.Image = "example.com/lease-service:1"
	o := start(t, conf, components(conf))

	for _, path := range []string{"/healthz", "/readyz"} {
		o.eventually(t, func(ctx context.Context) error {
			_, err := get(ctx, "http://"+conf.Health.BindAddress+path)
			return err
		})
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: namespace, Name: leaseName}
	o.eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, key, lease); err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return errors.New("nobody leads")
		}
		return nil
	})

	object := &v1alpha1.LeaseService{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "locks"}}
	if err := c.Create(testkit.Context(t), object); err != nil {
		t.Fatal(err)
	}
	o.eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if object.Status.ObservedGeneration != object.Generation {
			return errors.New("the object was not looked at")
		}
		return nil
	})
	o.eventually(t, func(ctx context.Context) error {
		body, err := get(ctx, "http://"+conf.Metrics.BindAddress+"/metrics")
		for _, name := range []string{"holdfast_build_info{", "holdfast_reconcile_writes_total{", "holdfast_reconcile_verdicts_total{", "controller_runtime_reconcile_total{"} {
			if err == nil && !strings.Contains(body, name) {
				err = fmt.Errorf("no metric %s", name)
			}
		}
		return err
	})

	took, err := o.stop(t)
	if err != nil {
		t.Errorf("stopped with %v", err)
	}
	if limit := conf.GracefulShutdownTimeout.Duration; took > limit {
		t.Errorf("stopping took %s, of %s", took, limit)
	}
	if err := c.Get(testkit.Context(t), key, lease); err != nil || (lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "") {
		t.Errorf("the lead was not given up: %v, %v", lease.Spec.HolderIdentity, err)
	}
	checkLogs(t, o.logs.String())
}

// checkLogs demands that every line is a JSON object with a time, a level and a message, and that none is an error.
func checkLogs(t *testing.T, text string) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Time  time.Time `json:"time"`
			Level string    `json:"level"`
			Msg   string    `json:"msg"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Time.IsZero() || line.Msg == "" {
			t.Errorf("no JSON line with time, level and msg (%v): %s", err, lines.Text())
		}
		if line.Level == "ERROR" && !partOfStopping(lines.Text()) {
			t.Errorf("an error was logged: %s", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}

// partOfStopping tells of an error whether the libraries log it of every operator that stops while it leads: that the lead,
// which it just gave up, is lost; that the event which tells so is still on its way when the manager's context ends; and that
// an answer was, to a request of a pass.
func partOfStopping(line string) bool {
	cut := strings.Contains(line, "Unable to write event") || strings.Contains(line, "Unexpected error when reading response body")
	return strings.Contains(line, "leader election lost") || cut && strings.Contains(line, "context canceled")
}

func TestComponentsLiveAsLongAsTheOperator(t *testing.T) {
	c := newClient(t)
	var mu sync.Mutex
	var diary []string
	note := func(what string) func(context.Context) error {
		return func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			diary = append(diary, what)
			return nil
		}
	}
	read := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(diary, " ")
	}
	conf := settings(t, newNamespace(t, c))
	conf.LeaderElection.Enabled = false
	o := start(t, conf, []component.Component{
		{Name: "b", DependsOn: []string{"a"}, Setup: func(context.Context, ctrl.Manager) error { return nil }, Start: note("start-b"), Stop: note("stop-b")},
		{Name: "a", Setup: func(context.Context, ctrl.Manager) error { return nil }, Start: note("start-a"), Stop: note("stop-a")},
	})
	o.eventually(t, func(ctx context.Context) error {
		_, err := get(ctx, "http://"+conf.Health.BindAddress+"/readyz")
		return err
	})
	if got := read(); got != "start-a start-b" {
		t.Errorf("started %q", got)
	}
	if _, err := o.stop(t); err != nil {
		t.Errorf("stopped with %v", err)
	}
	if got := read(); got != "start-a start-b stop-b stop-a" {
		t.Errorf("lived %q", got)
	}
}

func TestAComponentThatCannotStartEndsTheOperator(t *testing.T) {
	conf := settings(t, newNamespace(t, newClient(t)))
	refused := errors.New("connection refused")
	stopped := false
	o := start(t, conf, []component.Component{
		{Name: "a", Setup: func(context.Context, ctrl.Manager) error { return nil }, Stop: func(context.Context) error { stopped = true; return nil }},
		{Name: "b", Setup: func(context.Context, ctrl.Manager) error { return nil }, Start: func(context.Context) error { return refused }},
	})
	select {
	case err := <-o.done:
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), `component "b": start`) {
			t.Errorf("ended with %v", err)
		}
	case <-testkit.Context(t).Done():
		t.Fatal("the operator goes on")
	}
	if !stopped {
		t.Error("the component before it was not stopped")
	}
}

func TestTheSecondReplicaWaitsAndTakesOver(t *testing.T) {
	c := newClient(t)
	namespace := newNamespace(t, c)
	leads := func(o *operator) bool { return strings.Contains(o.logs.String(), `"msg":"leading"`) }
	watcher := func() []component.Component {
		return []component.Component{{Name: "watcher", Setup: func(_ context.Context, mgr ctrl.Manager) error {
			go func() { <-mgr.Elected(); mgr.GetLogger().Info("leading") }()
			return nil
		}}}
	}
	first := start(t, settings(t, namespace), watcher())
	first.eventually(t, func(context.Context) error {
		if !leads(first) {
			return errors.New("the first does not lead")
		}
		return nil
	})
	conf := settings(t, namespace)
	second := start(t, conf, watcher())
	second.eventually(t, func(ctx context.Context) error {
		_, err := get(ctx, "http://"+conf.Health.BindAddress+"/readyz")
		return err
	})
	if leads(second) {
		t.Fatal("two lead at once")
	}
	if _, err := first.stop(t); err != nil {
		t.Errorf("the first stopped with %v", err)
	}
	from := time.Now()
	second.eventually(t, func(context.Context) error {
		if !leads(second) {
			return errors.New("the second does not lead")
		}
		return nil
	})
	if took, lease := time.Since(from), conf.LeaderElection.LeaseDuration.Duration; took > lease {
		t.Errorf("taking over took %s, though the first gave the lead up: a lease is %s", took, lease)
	}
	if _, err := second.stop(t); err != nil {
		t.Errorf("the second stopped with %v", err)
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	const head = "apiVersion: config.dist.system/v1alpha1\nkind: OperatorConfig\n"
	cases := []struct{ name, body, want string }{
		{"an unknown key", head + "namespaces: []\nnamspaces: []\n", `unknown field "namspaces"`},
		{"no namespaces", head, "namespaces: Required value"},
		{"a bad duration", head + "namespaces: []\ngracefulShutdownTimeout: soon\n", `gracefulShutdownTimeout: Invalid value`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "operator.yaml")
			if err := os.WriteFile(path, []byte(c.body), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := command(io.Discard)
			cmd.SetArgs([]string{"--config", path})
			err := cmd.ExecuteContext(testkit.Context(t))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAComponentThatIsNotThereCannotBeDisabled(t *testing.T) {
	conf := settings(t, "default")
	conf.Components.Disabled = []string{"lease-sevice"}
	err := run(testkit.Context(t), options{config: conf, rest: env.Config, log: logr.Discard(), components: components(conf)})
	if err == nil || !strings.Contains(err.Error(), `"lease-sevice" cannot be disabled: there is none of that name, only lease-service`) {
		t.Errorf("got %v", err)
	}
}
