package component_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/operator/internal/component"
)

// named makes a component that does nothing.
func named(name string, needs ...string) component.Component {
	return component.Component{
		Name: name, DependsOn: needs,
		Setup: func(context.Context, ctrl.Manager) error { return nil },
	}
}

func TestOrder(t *testing.T) {
	cases := []struct {
		name       string
		components []component.Component
		disabled   []string
		want       []string
	}{
		{"without needs the list stays as it is", []component.Component{named("c"), named("a"), named("b")}, nil, []string{"c", "a", "b"}},
		{"needs come first", []component.Component{named("a", "b"), named("b", "c"), named("c")}, nil, []string{"c", "b", "a"}},
		{"only what must move moves", []component.Component{named("x"), named("a", "b"), named("y"), named("b")}, nil, []string{"x", "y", "b", "a"}},
		{"a diamond", []component.Component{named("top", "left", "right"), named("right", "base"), named("left", "base"), named("base")}, nil, []string{"base", "right", "left", "top"}},
		{"disabled ones are left out", []component.Component{named("a"), named("b"), named("c", "a")}, []string{"b"}, []string{"a", "c"}},
		{"both sides of a need may be disabled", []component.Component{named("a"), named("b", "a")}, []string{"a", "b"}, []string{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			core, err := component.New(c.components, c.disabled)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, core.Names()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	cases := []struct {
		name       string
		components []component.Component
		disabled   []string
		want       []string // each is in the error
	}{
		{"a circle of two", []component.Component{named("a", "b"), named("b", "a")}, nil, []string{"circle", "a -> b -> a"}},
		{"a circle behind others", []component.Component{named("x"), named("y", "x", "a"), named("a", "b"), named("b", "c"), named("c", "a")}, nil, []string{"a -> b -> c -> a"}},
		{"a component that needs itself", []component.Component{named("a", "a")}, nil, []string{"a -> a"}},
		{"an unknown need", []component.Component{named("a", "z")}, nil, []string{`"a" depends on "z"`}},
		{"an unknown name to disable", []component.Component{named("b"), named("a")}, []string{"z"}, []string{`"z"`, "only a, b"}},
		{"a needed one disabled", []component.Component{named("a"), named("b", "a")}, []string{"a"}, []string{`"a" cannot be disabled`, `"b" needs it`}},
		{"two of one name", []component.Component{named("a"), named("a")}, nil, []string{`two components have the name "a"`}},
		{"no name", []component.Component{named("")}, nil, []string{"number 1 has no name"}},
		{"no setup", []component.Component{{Name: "a"}}, nil, []string{`"a" has no setup`}},
		{"several faults at once", []component.Component{named("a", "y"), named("b", "z")}, []string{"x"}, []string{`"x"`, `"y"`, `"z"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := component.New(c.components, c.disabled)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q:\n%v", part, err)
				}
			}
		})
	}
}

// diary makes components that write down what is called.
type diary struct{ lines []string }

func (d *diary) component(name string, fail map[string]error, needs ...string) component.Component {
	note := func(what string) error {
		d.lines = append(d.lines, what+" "+name)
		return fail[what]
	}
	return component.Component{
		Name: name, DependsOn: needs,
		AddToScheme: func(*runtime.Scheme) error { return note("types") },
		Setup:       func(context.Context, ctrl.Manager) error { return note("setup") },
		Start:       func(context.Context) error { return note("start") },
		Stop:        func(context.Context) error { return note("stop") },
	}
}

func live(t *testing.T, core *component.Core) error {
	t.Helper()
	ctx := t.Context()
	return errors.Join(core.AddToScheme(runtime.NewScheme()), core.Setup(ctx, nil), core.Start(ctx), core.Stop(ctx))
}

func TestLifeIsInOrderAndEndsInReverse(t *testing.T) {
	d := &diary{}
	core, err := component.New([]component.Component{d.component("b", nil, "a"), d.component("a", nil)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := live(t, core); err != nil {
		t.Fatal(err)
	}
	want := []string{"types a", "types b", "setup a", "setup b", "start a", "start b", "stop b", "stop a"}
	if diff := cmp.Diff(want, d.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := core.Stop(t.Context()); err != nil || len(d.lines) != len(want) {
		t.Errorf("a second stop stopped something: %v, %v", d.lines[len(want):], err)
	}
}

func TestOnlyWhatWasStartedIsStopped(t *testing.T) {
	d := &diary{}
	refused := errors.New("no connection")
	core, err := component.New([]component.Component{
		d.component("a", nil), d.component("b", map[string]error{"start": refused}), d.component("c", nil),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(t.Context()); !errors.Is(err, refused) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("the error %v does not name the component and the cause", err)
	}
	if err := core.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"start a", "start b", "stop a"}, d.lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStopGoesOnAfterFailuresAndHangs(t *testing.T) {
	broken := errors.New("broken pipe")
	release, told := make(chan struct{}), make(chan struct{})
	defer close(release)
	ctx, deadline := context.WithCancel(t.Context())
	defer deadline()
	first, hanging, last := named("first"), named("hanging"), named("last")
	first.Stop = func(context.Context) error { close(told); return nil }
	hanging.Stop = func(context.Context) error { deadline(); <-release; return nil }
	last.Stop = func(context.Context) error { return broken }
	core, err := component.New([]component.Component{first, hanging, last}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(ctx); err != nil {
		t.Fatal(err)
	}
	err = core.Stop(ctx)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), `"hanging": stop: did not end in time`) {
		t.Errorf("the error does not name the failure and the component that hangs: %v", err)
	}
	select {
	case <-told:
	case <-t.Context().Done():
		t.Error("the component after the one that hangs was not told to stop")
	}
}

func TestSetupStopsAtTheFirstFailure(t *testing.T) {
	d := &diary{}
	refused := errors.New("no such type")
	core, err := component.New([]component.Component{d.component("a", map[string]error{"setup": refused}), d.component("b", nil)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Setup(t.Context(), nil); !errors.Is(err, refused) || fmt.Sprint(d.lines) != "[setup a]" {
		t.Errorf("got %v, after %v", err, d.lines)
	}
}

func TestCacheHasOneSpeakerForEachType(t *testing.T) {
	pods := func(name string) component.Component {
		c := named(name)
		c.Cache = map[client.Object]cache.ByObject{&corev1.Pod{}: {}}
		return c
	}
	core, err := component.New([]component.Component{pods("a"), named("b")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := core.Cache(); err != nil || len(all) != 1 {
		t.Errorf("got %d types, %v", len(all), err)
	}
	core, err = component.New([]component.Component{pods("a"), pods("b")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.Cache(); err == nil || !strings.Contains(err.Error(), `"a" and "b" both say how the cache holds *v1.Pod`) {
		t.Errorf("got %v", err)
	}
}
