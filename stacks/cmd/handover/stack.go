package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

// stack is the Pulumi stack, used by the Automation API from a folder of its own: the program is run in this process, in the
// phase that a step needs, and pulumi writes nothing into the checkout.
type stack struct {
	name  string
	dir   string
	stack auto.Stack
}

func openStack(ctx context.Context, o options) (s *stack, err error) {
	project, err := os.ReadFile(filepath.Join(o.project, "Pulumi.yaml"))
	if err != nil {
		return nil, fmt.Errorf("the project: %w", err)
	}
	dir, err := os.MkdirTemp("", "holdfast-handover.")
	if err != nil {
		return nil, err
	}
	s = &stack{name: o.stack, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.write("Pulumi.yaml", withoutMain(project)); err != nil {
		return nil, err
	}
	if err := s.configure(o.file); err != nil {
		return nil, err
	}
	workspace, err := auto.NewLocalWorkspace(ctx, auto.WorkDir(dir))
	if err != nil {
		return nil, fmt.Errorf("pulumi: %w", err)
	}
	if s.stack, err = auto.SelectStack(ctx, o.stack, workspace); err != nil {
		return nil, fmt.Errorf("select stack %q: %w", o.stack, err)
	}
	return s, nil
}

// withoutMain leaves out where the project's program is, since the program is this one.
func withoutMain(project []byte) []byte {
	lines := strings.SplitAfter(string(project), "\n")
	kept := lines[:0]
	for _, line := range lines {
		if !strings.HasPrefix(line, "main:") {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept, ""))
}

// configure copies the stack's file to where pulumi looks for it.
func (s *stack) configure(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("stack %q: %w", s.name, err)
	}
	return s.write("Pulumi."+s.name+".yaml", content)
}

// write writes a file of the folder, and none outside of it, whatever the stack is called.
func (s *stack) write(name string, content []byte) (err error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return root.WriteFile(name, content, 0o600)
}

func (s *stack) close() error { return os.RemoveAll(s.dir) }

// state reads the stack's state.
func (s *stack) state(ctx context.Context) (handover.State, error) {
	deployment, err := s.stack.Export(ctx)
	if err != nil {
		return handover.State{}, s.explain(err)
	}
	return handover.ParseState(deployment.Deployment)
}

// dropPending drops from the state the operations that a killed update left behind, and says how many there were.
func (s *stack) dropPending(ctx context.Context) (int, error) {
	deployment, err := s.stack.Export(ctx)
	if err != nil {
		return 0, s.explain(err)
	}
	state, err := handover.ParseState(deployment.Deployment)
	if err != nil || state.Pending == 0 {
		return 0, err
	}
	if deployment.Deployment, err = handover.DropPending(deployment.Deployment); err != nil {
		return 0, err
	}
	return state.Pending, s.explain(s.stack.Import(ctx, deployment))
}

// uninterrupted is a context for a command of pulumi's. Ctrl-C does not end it: the terminal sends that to pulumi itself, which
// then ends in order, and would end at once if it were interrupted a second time. A SIGTERM and the deadline do.
func uninterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	free, stop := signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM)
	deadline, ok := ctx.Deadline()
	if !ok {
		return free, stop
	}
	bounded, cancel := context.WithDeadline(free, deadline)
	return bounded, func() { cancel(); stop() }
}

// preview lists what an update with the program would do.
func (s *stack) preview(ctx context.Context, file string, program pulumi.RunFunc) ([]handover.Op, error) {
	if err := s.configure(file); err != nil {
		return nil, err
	}
	s.stack.Workspace().SetProgram(program)
	ctx, cancel := uninterrupted(ctx)
	defer cancel()
	stream, done := make(chan events.EngineEvent), make(chan previewed, 1)
	go func() { done <- collect(stream) }()
	if _, err := s.stack.Preview(ctx, optpreview.EventStreams(stream)); err != nil {
		return nil, s.explain(err) // the stream may not even have been opened, and is not waited for
	}
	result := <-done
	return result.ops, result.err
}

type previewed struct {
	ops []handover.Op
	err error
}

// collect reads the operations from the stream. An event that is lost is an error: it may have been a deletion.
func collect(stream <-chan events.EngineEvent) previewed {
	var result previewed
	for event := range stream {
		if event.Error != nil {
			result.err = errors.Join(result.err, fmt.Errorf("read the preview: %w", event.Error))
		}
		if pre := event.ResourcePreEvent; pre != nil {
			result.ops = append(result.ops, op(pre.Metadata))
		}
	}
	return result
}

func op(step apitype.StepEventMetadata) handover.Op {
	out := handover.Op{Kind: string(step.Op), URN: step.URN, Type: step.Type}
	for _, side := range []*apitype.StepEventStateMetadata{step.New, step.Old} {
		if side != nil {
			out.Custom = out.Custom || side.Custom
		}
	}
	out.Retained = step.Old != nil && step.Old.RetainOnDelete
	out.Changes = slices.Sorted(maps.Keys(step.DetailedDiff))
	if len(out.Changes) == 0 {
		out.Changes = step.Diffs
	}
	return out
}

func (s *stack) up(ctx context.Context, file string, program pulumi.RunFunc) error {
	if err := s.configure(file); err != nil {
		return err
	}
	s.stack.Workspace().SetProgram(program)
	ctx, cancel := uninterrupted(ctx)
	defer cancel()
	_, err := s.stack.Up(ctx, optup.SuppressProgress())
	return s.explain(err)
}

func (s *stack) destroy(ctx context.Context) error {
	ctx, cancel := uninterrupted(ctx)
	defer cancel()
	_, err := s.stack.Destroy(ctx, optdestroy.SuppressProgress())
	return s.explain(err)
}

func (s *stack) unlock(ctx context.Context) error {
	if err := s.stack.Cancel(ctx); err != nil {
		return fmt.Errorf("take the stack's lock: %w", err)
	}
	return nil
}

// explain adds to an error what to do about it.
func (s *stack) explain(err error) error {
	if err != nil && auto.IsConcurrentUpdateError(err) {
		return fmt.Errorf("%w\nif that update was killed, take its lock by -unlock (make: UNLOCK=1)", err)
	}
	return err
}
