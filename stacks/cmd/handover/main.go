// Command handover moves what a stack deploys from Pulumi to GitOps (Argo CD or Flux), or back, without deleting or
// restarting anything. It can be interrupted anywhere and run again; docs/handover.md tells the steps.
//
// usage: handover -to pulumi|gitops [-stack STACK] [-tenant NAME] [-dry-run] [-unlock] [-destroy]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-io/holdfast/stacks/internal/handover"
)

type options struct {
	to      handover.Target
	stack   string
	tenant  string
	project string // folder of Pulumi.yaml
	file    string // the stack's file; empty means Pulumi.<stack>.yaml in project
	gitURL  string // where this machine reads the repository; empty means the URL that the controllers use
	dryRun  bool
	unlock  bool
	destroy bool
	lock    int // descriptor of a lock that is held for this command; 0: there is none
	timeout time.Duration
}

func main() {
	var o options
	flag.Func("to", "who shall own the objects: pulumi or gitops; required", func(text string) error {
		o.to = handover.Target(text)
		return nil
	})
	flag.StringVar(&o.stack, "stack", "dev", "name of the stack")
	flag.StringVar(&o.tenant, "tenant", "", "move this tenant alone (default: the platform, and every tenant that names no owner itself)")
	flag.StringVar(&o.project, "project", ".", "folder of Pulumi.yaml")
	flag.StringVar(&o.file, "config", "", "the stack's file (default Pulumi.<stack>.yaml); its ownership is changed")
	flag.StringVar(&o.gitURL, "git-url", "", "where this machine reads the repository, if not where the cluster does")
	flag.BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	flag.BoolVar(&o.unlock, "unlock", false, "take the stack's lock from an update that was killed; make sure that none is running")
	flag.BoolVar(&o.destroy, "destroy", false, "with -to pulumi: move everything, then destroy the stack")
	flag.IntVar(&o.lock, "lock", 0, "descriptor of an open file, locked for as long as this command runs")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "give up after this time")
	flag.Parse()

	log.SetLogger(logr.Discard()) // the Kubernetes client complains when nobody does
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "handover:", err)
		os.Exit(1)
	}
}

func (o *options) complete() error {
	if o.to != handover.Pulumi && o.to != handover.GitOps {
		return fmt.Errorf("-to is %q; allowed: %s, %s", o.to, handover.Pulumi, handover.GitOps)
	}
	if o.destroy && (o.to != handover.Pulumi || o.tenant != "") {
		return errors.New("-destroy needs -to pulumi, and no -tenant: what Git keeps is taken back before it is destroyed")
	}
	if o.destroy && o.dryRun {
		return errors.New("-dry-run says how the objects are moved: leave out -destroy")
	}
	if o.unlock && o.dryRun {
		return errors.New("-dry-run changes nothing, and leaves the lock where it is: leave out -unlock")
	}
	if o.file == "" {
		o.file = o.committed()
	}
	return nil
}

// committed is the stack's file in the checkout. That of the stack of `make up` is another one, which is made from it.
func (o *options) committed() string {
	return filepath.Join(o.project, "Pulumi."+o.stack+".yaml")
}

func (o *options) inCheckout() bool { return filepath.Clean(o.file) == o.committed() }

// keepLock has the lock end with this process. A provider of Pulumi's may outlive one that was killed, and would keep the lock
// that it inherited.
func (o *options) keepLock() error {
	if o.lock == 0 {
		return nil
	}
	if _, err := unix.FcntlInt(uintptr(o.lock), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return fmt.Errorf("-lock is %d; allowed is the descriptor of an open file: %w", o.lock, err)
	}
	return nil
}

func run(ctx context.Context, o options, out io.Writer) error {
	if err := errors.Join(o.complete(), o.keepLock()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	m, err := begin(ctx, o, out)
	if errors.Is(err, errNoGitOps) && o.destroy {
		return destroyAlone(ctx, o)
	}
	if err != nil {
		return err
	}
	err = m.move(ctx)
	return errors.Join(err, m.close())
}

// destroyAlone destroys a stack that has never been handed over.
func destroyAlone(ctx context.Context, o options) error {
	s, err := openStack(ctx, o)
	if err != nil {
		return err
	}
	if o.unlock {
		err = s.unlock(ctx)
	}
	if err == nil {
		err = s.destroy(ctx)
	}
	return errors.Join(err, s.close())
}
