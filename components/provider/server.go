package provider

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumiprovider "github.com/pulumi/pulumi/sdk/v3/go/pulumi/provider"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

//go:embed schema.json
var schema string

// Schema is the package's schema in JSON, as it is committed.
func Schema() string { return schema }

// Run serves the package to the Pulumi engine that started the program, until that engine is gone.
func Run(ctx context.Context) error {
	return pulumiprovider.MainContext(ctx, Name,
		func(host *pulumiprovider.HostClient) (pulumirpc.ResourceProviderServer, error) {
			return &server{host: host}, nil
		})
}

// server is the package as the engine sees it. It has no configuration: the objects of the components go to the
// Kubernetes provider that the program uses.
type server struct {
	pulumirpc.UnimplementedResourceProviderServer
	host *pulumiprovider.HostClient
}

func (s *server) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: Version}, nil
}

func (s *server) GetSchema(_ context.Context, req *pulumirpc.GetSchemaRequest) (*pulumirpc.GetSchemaResponse, error) {
	if req.GetVersion() != 0 {
		return nil, status.Errorf(codes.InvalidArgument, "schema version %d is not supported; supported is 0", req.GetVersion())
	}
	return &pulumirpc.GetSchemaResponse{Schema: schema}, nil
}

func (s *server) CheckConfig(_ context.Context, req *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	return &pulumirpc.CheckResponse{Inputs: req.GetNews()}, nil
}

func (s *server) DiffConfig(context.Context, *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE}, nil
}

func (s *server) Configure(context.Context, *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	return &pulumirpc.ConfigureResponse{
		AcceptSecrets: true, AcceptResources: true, AcceptOutputs: true, SupportsPreview: true,
	}, nil
}

// Attach connects to the engine of a program that the provider was started before.
func (s *server) Attach(_ context.Context, req *pulumirpc.PluginAttach) (*emptypb.Empty, error) {
	host, err := pulumiprovider.NewHostClient(req.GetAddress())
	if err != nil {
		return nil, fmt.Errorf("connect to the engine at %s: %w", req.GetAddress(), err)
	}
	s.host = host
	return &emptypb.Empty{}, nil
}

func (s *server) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (s *server) Construct(ctx context.Context, req *pulumirpc.ConstructRequest) (*pulumirpc.ConstructResponse, error) {
	list := Components()
	at := slices.IndexFunc(list, func(c Component) bool { return c.Token() == req.GetType() })
	if at < 0 {
		return nil, status.Errorf(codes.InvalidArgument, "%s is no component of this package; there are %s",
			req.GetType(), strings.Join(tokens(list), ", "))
	}
	properties, err := plugin.UnmarshalProperties(req.GetInputs(), plugin.MarshalOptions{
		KeepSecrets: true, KeepUnknowns: true, KeepOutputValues: true, KeepResources: true,
	})
	if err != nil {
		return nil, fmt.Errorf("read the arguments of %s %s: %w", req.GetType(), req.GetName(), err)
	}
	in, err := read(properties, list[at].Args)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "%s %s: %v", list[at].Name, req.GetName(), err)
	}
	dependOnArguments(req, in)
	return pulumiprovider.Construct(ctx, req, s.host.EngineConn(), func(
		ctx *pulumi.Context, _, name string, _ pulumiprovider.ConstructInputs, options pulumi.ResourceOption,
	) (*pulumiprovider.ConstructResult, error) {
		res, err := list[at].construct(ctx, name, in, options)
		if err != nil {
			return nil, err
		}
		return pulumiprovider.NewConstructResult(res)
	})
}

// dependOnArguments makes the component depend on what its arguments come from. Plain arguments no longer know that, and
// without it a destroy could take an etcd away before the lease service that uses it.
func dependOnArguments(req *pulumirpc.ConstructRequest, in *inputs) {
	urns := append(req.GetDependencies(), in.dependencies...)
	for _, dependencies := range req.GetInputDependencies() {
		urns = append(urns, dependencies.GetUrns()...)
	}
	slices.Sort(urns)
	req.Dependencies = slices.Compact(urns)
}

func tokens(list []Component) []string {
	all := make([]string, 0, len(list))
	for _, component := range list {
		all = append(all, component.Token())
	}
	return all
}
