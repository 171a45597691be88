// Command pulumi-language-nodejs is as much of a Pulumi language host for "runtime: nodejs" as the end-to-end tests need to
// run a program in TypeScript. Pulumi's own host is not published as a module that could be built; what it starts, the
// program `run` of the SDK @pulumi/pulumi, is the real one. It installs nothing.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// engineCheckInterval is how often the host asks whether the engine that started it still lives.
	engineCheckInterval = 5 * time.Second
	// exitLogged is the exit code of a program whose error the SDK has already reported to the engine.
	exitLogged = 32
)

func main() {
	for _, name := range []string{"tracing", "root"} {
		flag.String(name, "", "accepted since the CLI passes it; unused")
	}
	flag.Parse()
	if err := serve(context.Background(), flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-language-nodejs:", err)
		os.Exit(1)
	}
}

// serve serves the protocol until the engine at the address is gone, or an interrupt comes.
func serve(ctx context.Context, engine string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	if engine != "" {
		if err := rpcutil.Healthcheck(ctx, engine, engineCheckInterval, stop); err != nil {
			return fmt.Errorf("watch the engine at %s: %w", engine, err)
		}
	}
	cancel := make(chan bool)
	go func() { <-ctx.Done(); close(cancel) }()
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: cancel,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(server, &host{engine: engine})
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port) // the CLI reads the port from the first line
	return <-handle.Done
}

// host implements the language protocol.
type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	engine string
}

func (h *host) Handshake(_ context.Context, req *pulumirpc.LanguageHandshakeRequest) (*pulumirpc.LanguageHandshakeResponse, error) {
	h.engine = req.GetEngineAddress()
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: "0.0.0-test"}, nil
}

// GetRequiredPackages names none: the SDK names the provider when it registers a resource.
func (h *host) GetRequiredPackages(context.Context, *pulumirpc.GetRequiredPackagesRequest) (*pulumirpc.GetRequiredPackagesResponse, error) {
	return &pulumirpc.GetRequiredPackagesResponse{}, nil
}

// Run runs the program to its end.
func (h *host) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	config, err := json.Marshal(req.GetConfig())
	if err != nil {
		return nil, err
	}
	secretKeys, err := json.Marshal(req.GetConfigSecretKeys())
	if err != nil {
		return nil, err
	}
	args := []string{
		filepath.Join(req.GetInfo().GetProgramDirectory(), "node_modules", "@pulumi", "pulumi", "cmd", "run"),
		"--monitor=" + req.GetMonitorAddress(), "--engine=" + h.engine,
		"--organization=" + req.GetOrganization(), "--project=" + req.GetProject(), "--stack=" + req.GetStack(),
		"--pwd=" + req.GetPwd(), "--parallel=" + strconv.Itoa(int(req.GetParallel())),
	}
	if req.GetDryRun() {
		args = append(args, "--dry-run")
	}
	cmd := exec.CommandContext(ctx, "node", append(append(args, req.GetInfo().GetEntryPoint()), req.GetArgs()...)...)
	cmd.Dir = req.GetPwd()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(),
		"PULUMI_CONFIG="+string(config), "PULUMI_CONFIG_SECRET_KEYS="+string(secretKeys), "PULUMI_NODEJS_TYPESCRIPT=true")
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &exit) && exit.ExitCode() == exitLogged:
		return &pulumirpc.RunResponse{Bail: true}, nil
	default:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("node: %v", err)}, nil
	}
}
