package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/emptypb"
)

// exitLogged is the exit code of a Go program whose error the SDK has already reported to the engine.
const exitLogged = 32

// host implements the language protocol. It keeps no state besides what it was started with.
type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	engine, binary string
}

func (h *host) Handshake(_ context.Context, req *pulumirpc.LanguageHandshakeRequest) (*pulumirpc.LanguageHandshakeResponse, error) {
	h.engine = req.GetEngineAddress()
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: version}, nil
}

func (h *host) About(ctx context.Context, _ *pulumirpc.AboutRequest) (*pulumirpc.AboutResponse, error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, path, "version").Output()
	if err != nil {
		return nil, fmt.Errorf("go version: %w", err)
	}
	return &pulumirpc.AboutResponse{Executable: path, Version: strings.TrimSpace(string(out))}, nil
}

func (h *host) RuntimeOptionsPrompts(context.Context, *pulumirpc.RuntimeOptionsRequest) (*pulumirpc.RuntimeOptionsResponse, error) {
	return &pulumirpc.RuntimeOptionsResponse{}, nil
}

func (h *host) InstallDependencies(req *pulumirpc.InstallDependenciesRequest, srv pulumirpc.LanguageRuntime_InstallDependenciesServer) error {
	cmd := exec.CommandContext(srv.Context(), "go", "mod", "download")
	cmd.Dir = req.GetInfo().GetProgramDirectory()
	out, err := cmd.CombinedOutput()
	if sendErr := srv.Send(&pulumirpc.InstallDependenciesResponse{Stdout: out}); sendErr != nil {
		return sendErr
	}
	return err
}

// Run builds the program, unless it is prebuilt, and runs it to its end.
func (h *host) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	program, clean, err := h.program(ctx, req.GetInfo())
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	defer clean()
	env, err := h.environment(req)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, req.GetArgs()...)
	cmd.Dir = req.GetPwd()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = env
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &exit) && exit.ExitCode() == exitLogged:
		return &pulumirpc.RunResponse{Bail: true}, nil
	default:
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("program %s: %v", program, err)}, nil
	}
}

// RunPlugin builds and runs a component package from its source folder.
func (h *host) RunPlugin(req *pulumirpc.RunPluginRequest, srv pulumirpc.LanguageRuntime_RunPluginServer) error {
	program, clean, err := buildProgram(srv.Context(), req.GetInfo().GetProgramDirectory())
	if err != nil {
		return err
	}
	defer clean()
	cmd := exec.CommandContext(srv.Context(), program, req.GetArgs()...)
	cmd.Dir = req.GetPwd()
	cmd.Env = append(os.Environ(), req.GetEnv()...)
	cmd.Stdout = writerFunc(func(p []byte) error {
		return srv.Send(&pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Stdout{Stdout: p}})
	})
	cmd.Stderr = writerFunc(func(p []byte) error {
		return srv.Send(&pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Stderr{Stderr: p}})
	})
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return srv.Send(&pulumirpc.RunPluginResponse{Output: &pulumirpc.RunPluginResponse_Exitcode{Exitcode: int32(exit.ExitCode())}})
	}
	return err
}

// program returns the program to run, and what removes it afterwards if it was built for this run.
func (h *host) program(ctx context.Context, info *pulumirpc.ProgramInfo) (path string, clean func(), err error) {
	binary := h.binary
	if binary == "" {
		binary = info.GetOptions().GetFields()["binary"].GetStringValue()
	}
	if binary == "" {
		return buildProgram(ctx, info.GetProgramDirectory())
	}
	if !filepath.IsAbs(binary) {
		binary = filepath.Join(info.GetProgramDirectory(), binary)
	}
	return binary, func() {}, nil
}

// buildProgram compiles the main package in a folder into a temporary file.
func buildProgram(ctx context.Context, folder string) (path string, clean func(), err error) {
	tmp, err := os.MkdirTemp("", "pulumi-go.")
	if err != nil {
		return "", nil, err
	}
	clean = func() { _ = os.RemoveAll(tmp) }
	path = filepath.Join(tmp, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-w", "-o", path, ".") // debug data doubles the linking time
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		clean()
		return "", nil, fmt.Errorf("go build in %s: %w\n%s", folder, err, out)
	}
	return path, clean, nil
}

// environment is how a program learns its stack, its config and the engine's addresses.
func (h *host) environment(req *pulumirpc.RunRequest) ([]string, error) {
	config, err := json.Marshal(req.GetConfig())
	if err != nil {
		return nil, err
	}
	secretKeys, err := json.Marshal(req.GetConfigSecretKeys())
	if err != nil {
		return nil, err
	}
	return append(os.Environ(),
		"PULUMI_ORGANIZATION="+req.GetOrganization(),
		"PULUMI_PROJECT="+req.GetProject(),
		"PULUMI_STACK="+req.GetStack(),
		"PULUMI_CONFIG="+string(config),
		"PULUMI_CONFIG_SECRET_KEYS="+string(secretKeys),
		fmt.Sprintf("PULUMI_DRY_RUN=%v", req.GetDryRun()),
		fmt.Sprintf("PULUMI_PARALLEL=%d", req.GetParallel()),
		"PULUMI_MONITOR="+req.GetMonitorAddress(),
		"PULUMI_ENGINE="+h.engine,
		"PULUMI_ROOT_DIRECTORY="+req.GetInfo().GetRootDirectory(),
	), nil
}

// writerFunc turns a function that sends a chunk into an io.Writer.
type writerFunc func([]byte) error

func (f writerFunc) Write(p []byte) (int, error) { return len(p), f(p) }
