package components

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/components/kube"
	"github.com/holdfast-io/holdfast/operator/api/v1alpha1"
)

const zooKeeperConfigSetType = "holdfast:index:ZooKeeperConfigSet"

// ZooKeeperConfigArgs configures a [ZooKeeperConfig].
type ZooKeeperConfigArgs struct {
	// Metadata of the object; name and namespace are required.
	Metadata metav1.ObjectMeta
	// Spec is sent as it is. What is secret does not belong into it: name a Secret in DataFrom.
	Spec v1alpha1.ZooKeeperConfigSpec
	// SkipAwait lets the update go on before the object is Ready.
	SkipAwait bool
}

// ZooKeeperConfig is the custom resource ZooKeeperConfig: one znode. Unless told otherwise an update waits until its
// condition Ready is True for the generation that was applied.
type ZooKeeperConfig struct {
	pulumi.CustomResourceState

	// Metadata is the object's metadata as the API server returned it.
	Metadata pulumi.MapOutput `pulumi:"metadata"`
	// Spec with the API server's defaults filled in.
	Spec pulumi.MapOutput `pulumi:"spec"`
	// Status as the operator reported it when the object became Ready.
	Status pulumi.MapOutput `pulumi:"status"`
}

// NewZooKeeperConfig registers a ZooKeeperConfig under the logical name.
func NewZooKeeperConfig(
	ctx *pulumi.Context, name string, args *ZooKeeperConfigArgs, opts ...pulumi.ResourceOption,
) (*ZooKeeperConfig, error) {
	if err := checkMetadata("ZooKeeperConfig", name, args.Metadata); err != nil {
		return nil, err
	}
	res := &ZooKeeperConfig{}
	// A deletion waits for ZooKeeper at most for the operator's deadline, which is seconds.
	opts = append([]pulumi.ResourceOption{timeouts("2m", "2m", "2m")}, opts...)
	if err := kube.Register(ctx, name, zooKeeperConfigObject(args), res, opts...); err != nil {
		return nil, err
	}
	return res, nil
}

func zooKeeperConfigObject(args *ZooKeeperConfigArgs) *v1alpha1.ZooKeeperConfig {
	object := &v1alpha1.ZooKeeperConfig{
		TypeMeta:   kube.Type(v1alpha1.GroupVersion, "ZooKeeperConfig"),
		ObjectMeta: awaited(args.Metadata, !args.SkipAwait),
		Spec:       *args.Spec.DeepCopy(),
	}
	return object
}

// ZooKeeperConfigSetArgs configures a [ZooKeeperConfigSet].
type ZooKeeperConfigSetArgs struct {
	// Namespace of the objects; required.
	Namespace string
	// Values are plain texts by path. They are readable by whoever may read ZooKeeperConfigs.
	Values map[string]string
	// Secrets are secret texts by path. They are secret in the state of the stack, and go to ZooKeeper by way of a
	// Kubernetes Secret, never through the objects.
	Secrets map[string]pulumi.StringInput
	// Common is what all objects have in common: connection, acl, policies. Its path and data are not looked at.
	Common v1alpha1.ZooKeeperConfigSpec
	// SkipAwait lets the update go on before the objects are Ready.
	SkipAwait bool
}

// ZooKeeperConfigSet is a number of znodes, such as those that a stack's configuration lists.
type ZooKeeperConfigSet struct {
	pulumi.ResourceState

	// Paths of the znodes, in order.
	Paths pulumi.StringArrayOutput `pulumi:"paths"`
	// Configs are the objects by path.
	Configs map[string]*ZooKeeperConfig
}

// NewZooKeeperConfigSet registers a ZooKeeperConfigSet under the logical name, which is also the start of the names of
// its objects.
func NewZooKeeperConfigSet(
	ctx *pulumi.Context, name string, args *ZooKeeperConfigSetArgs, opts ...pulumi.ResourceOption,
) (*ZooKeeperConfigSet, error) {
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("ZooKeeperConfigSet %s: %w", name, err)
	}
	set := &ZooKeeperConfigSet{Configs: map[string]*ZooKeeperConfig{}}
	if err := ctx.RegisterComponentResource(zooKeeperConfigSetType, name, set, opts...); err != nil {
		return nil, fmt.Errorf("register ZooKeeperConfigSet %s: %w", name, err)
	}
	childOpts := []pulumi.ResourceOption{pulumi.Parent(set)}
	if len(args.Secrets) > 0 {
		secret, err := registerSecret(ctx, name+"-values", args.Namespace, secretTexts(args.Secrets), childOpts...)
		if err != nil {
			return nil, err
		}
		childOpts = append(childOpts, pulumi.DependsOn([]pulumi.Resource{secret}))
	}
	paths := slices.Sorted(maps.Keys(args.Values))
	paths = slices.Sorted(slices.Values(slices.AppendSeq(paths, maps.Keys(args.Secrets))))
	for _, path := range paths {
		spec := *args.Common.DeepCopy()
		spec.Path, spec.Data, spec.StringData, spec.DataFrom = path, nil, nil, nil
		if text, plain := args.Values[path]; plain {
			spec.StringData = &text
		} else {
			key := &v1alpha1.ObjectKeyReference{Name: name + "-values", Key: pathKey(path)}
			spec.DataFrom = &v1alpha1.ZnodeDataSource{SecretKeyRef: key}
		}
		objectName := kube.Name(maxObjectName, name, pathSlug(path), pathKey(path))
		config, err := NewZooKeeperConfig(ctx, objectName, &ZooKeeperConfigArgs{
			Metadata:  objectMeta(args.Namespace, objectName, map[string]string{labelInstance: name, labelPartOf: partOf}),
			Spec:      spec,
			SkipAwait: args.SkipAwait,
		}, childOpts...)
		if err != nil {
			return nil, err
		}
		set.Configs[path] = config
	}
	set.Paths = pulumi.ToStringArray(paths).ToStringArrayOutput()
	return set, ctx.RegisterResourceOutputs(set, pulumi.Map{"paths": set.Paths})
}

// maxObjectName is the longest name of a Kubernetes object whose name need not be a label.
const maxObjectName = 253

func (a *ZooKeeperConfigSetArgs) validate() error {
	if a.Namespace == "" {
		return errors.New("namespace is required")
	}
	if len(a.Values)+len(a.Secrets) == 0 {
		return errors.New("values and secrets are both empty: list at least one path")
	}
	for path := range a.Secrets {
		if _, twice := a.Values[path]; twice {
			return fmt.Errorf("path %s is in values and in secrets", path)
		}
	}
	return nil
}

func secretTexts(texts map[string]pulumi.StringInput) pulumi.StringMap {
	out := pulumi.StringMap{}
	for path, text := range texts {
		out[pathKey(path)] = pulumi.ToSecret(text).(pulumi.StringOutput)
	}
	return out
}

// registerSecret registers a Secret whose texts are not known before the update. They are marked as secrets, whatever the
// caller marked, so the state has them encrypted.
func registerSecret(
	ctx *pulumi.Context, name, namespace string, texts pulumi.StringMap, opts ...pulumi.ResourceOption,
) (*kube.Resource, error) {
	res := &kube.Resource{}
	opts = append([]pulumi.ResourceOption{pulumi.Version(kube.ProviderVersion)}, opts...)
	inputs := pulumi.Map{
		"apiVersion": pulumi.String("v1"), "kind": pulumi.String("Secret"), "type": pulumi.String("Opaque"),
		"metadata":   pulumi.Map{"name": pulumi.String(name), "namespace": pulumi.String(namespace)},
		"stringData": texts,
	}
	if err := ctx.RegisterResource(kube.Token("v1", "Secret"), name, inputs, res, opts...); err != nil {
		return nil, fmt.Errorf("%s: register Secret: %w", name, err)
	}
	return res, nil
}

// pathKey identifies a path where it cannot be written out: in names and in keys of Secrets.
func pathKey(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:5])
}

// pathSlug is what of a path can be written in a name, for people.
func pathSlug(path string) string {
	slug := strings.Map(func(char rune) rune {
		if (char >= 'a' && char <= 'z') || (char >= '0' && char <= '9') {
			return char
		}
		return '-'
	}, strings.ToLower(path))
	return strings.Trim(slug, "-")
}
