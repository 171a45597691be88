package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// module is what `go list -m -json` prints of a module.
type module struct {
	Version, Dir string
	Replace      *module
}

// pluginFile is a pulumi-plugin.json: it names the provider that a module's packages talk to.
type pluginFile struct {
	Resource              bool
	Name, Version, Server string
}

// GetRequiredPackages lists the providers that the program's modules name. A prebuilt program lists
// none: it names each provider when it registers a resource.
func (h *host) GetRequiredPackages(ctx context.Context, req *pulumirpc.GetRequiredPackagesRequest) (*pulumirpc.GetRequiredPackagesResponse, error) {
	resp := &pulumirpc.GetRequiredPackagesResponse{}
	if h.binary != "" || req.GetInfo().GetOptions().GetFields()["binary"] != nil {
		return resp, nil
	}
	modules, err := listModules(ctx, req.GetInfo().GetProgramDirectory())
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		if p := pluginOf(m); p != nil {
			resp.Packages = append(resp.Packages, p)
		}
	}
	return resp, nil
}

func listModules(ctx context.Context, folder string) ([]module, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-json=Version,Dir,Replace", "all")
	cmd.Dir = folder
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m all in %s: %w", folder, err)
	}
	var modules []module
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var m module
		switch err := decoder.Decode(&m); {
		case errors.Is(err, io.EOF):
			return modules, nil
		case err != nil:
			return nil, fmt.Errorf("decode go list: %w", err)
		}
		if m.Dir == "" && m.Replace != nil {
			m.Dir = m.Replace.Dir
		}
		if m.Dir != "" {
			modules = append(modules, m)
		}
	}
}

// pluginOf returns the provider that a module names, or nil. The file lies at the module's root, or in
// the folder of its Go package.
func pluginOf(m module) *pulumirpc.PackageDependency {
	files := []string{filepath.Join(m.Dir, "pulumi-plugin.json"), filepath.Join(m.Dir, "go", "pulumi-plugin.json")}
	nested, _ := filepath.Glob(filepath.Join(m.Dir, "go", "*", "pulumi-plugin.json")) // the pattern is well formed
	for _, file := range append(files, nested...) {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var p pluginFile
		if json.Unmarshal(content, &p) != nil || !p.Resource {
			continue
		}
		v := p.Version
		if v == "" {
			v = m.Version
		}
		if v != "" && !strings.HasPrefix(v, "v") {
			v = "v" + v
		}
		return &pulumirpc.PackageDependency{Name: p.Name, Kind: "resource", Version: v, Server: p.Server}
	}
	return nil
}
