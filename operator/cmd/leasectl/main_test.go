package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/operator/internal/lease/leasetest"
	"github.com/holdfast-io/holdfast/operator/internal/lease/service"
)

func TestMain(m *testing.M) {
	testscript.Main(tidy{m}, map[string]func(){
		"leasectl":     main,
		"lease-server": serve,
	})
}

// tidy lets tests fail that leave goroutines behind.
type tidy struct{ *testing.M }

// Run implements testscript.TestingM.
func (m tidy) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// serve is a lease service for scripts, which can then kill it. It takes its address, and keeps its data in
// $WORK/data.
func serve() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opts := leasetest.Options("alone")
	opts.Listen, opts.DataDir = os.Args[1], os.Getenv("WORK")+"/data"
	if err := service.Run(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			address, err := freeAddress()
			if err != nil {
				return err
			}
			env.Setenv("LEASECTL_SERVER", address)
			return nil
		},
	})
}
