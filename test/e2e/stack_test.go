//go:build e2e

package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// stack is the dev stack of this checkout, deployed by the real CLI with a state of its own.
type stack struct {
	cli    string
	env    []string
	dir    string
	file   string // the stack's config
	config map[string]any
	salt   string // of the passphrase, as pulumi keeps it in the stack's file
}

// tenant is an entry of holdfast:tenants.
type tenant map[string]any

// newStack makes a stack in a temporary folder, from the committed Pulumi.dev.yaml with the built images in it.
func newStack(t *testing.T, env environment, kubeconfig string) *stack {
	t.Helper()
	return newStackIn(t, env, kubeconfig, t.TempDir())
}

// passphrase of the stacks of tests.
const passphrase = "of-a-test"

// newStackIn does what newStack does, in a folder of the caller's.
func newStackIn(t *testing.T, env environment, kubeconfig, home string) *stack {
	t.Helper()
	s := &stack{cli: "pulumi", dir: env.repository, file: filepath.Join(home, "Pulumi.dev.yaml")}
	require.NoError(t, os.MkdirAll(filepath.Join(home, "state"), 0o700))
	s.env = []string{
		"KUBECONFIG=" + kubeconfig,
		"PULUMI_BACKEND_URL=file://" + filepath.Join(home, "state") + "?metadata=skip",
		"PULUMI_CONFIG_PASSPHRASE=" + passphrase,
		"PULUMI_SKIP_UPDATE_CHECK=true",
		"NO_COLOR=1",
	}
	if env.pulumiBin != "" {
		s.cli = filepath.Join(env.pulumiBin, "pulumi")
		s.env = append(s.env, "PATH="+env.pulumiBin+":"+os.Getenv("PATH"), "PULUMI_HOME="+home, "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION=true")
		linkPlugins(t, filepath.Join(env.pulumiBin, "plugins"), filepath.Join(home, "plugins"))
	}
	s.config = loadStackConfig(t, filepath.Join(env.repository, "Pulumi.dev.yaml"))
	s.section("operator")["image"] = env.operatorImage
	s.section("leaseService")["image"] = env.leaseImage
	s.section("devEtcd")["image"] = env.etcdImage
	s.salt = s.create(t, filepath.Join(home, "project"), "holdfast")
	s.save(t)
	return s
}

// beside makes a stack of another project, whose program is in dir, with its state beside that of s.
func (s *stack) beside(t *testing.T, project, dir, kubeconfig string, config map[string]any) *stack {
	t.Helper()
	home := t.TempDir()
	other := &stack{
		cli: s.cli, dir: dir, file: filepath.Join(home, "Pulumi.dev.yaml"), config: config,
		env: append(slices.Clone(s.env), "KUBECONFIG="+kubeconfig),
	}
	other.salt = other.create(t, filepath.Join(home, "project"), project)
	other.save(t)
	return other
}

// create makes the stack from a folder of its own, since pulumi writes the salt beside Pulumi.yaml, and the checkout is not
// to change.
func (s *stack) create(t *testing.T, folder, project string) (salt string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "Pulumi.yaml"), []byte("name: "+project+"\nruntime: go\n"), 0o600))
	s.pulumi("--cwd", folder, "stack", "init", "dev").must(t)
	content, err := os.ReadFile(filepath.Join(folder, "Pulumi.dev.yaml"))
	require.NoError(t, err)
	var written struct {
		EncryptionSalt string `json:"encryptionsalt"`
	}
	require.NoError(t, yaml.Unmarshal(content, &written))
	return written.EncryptionSalt
}

// linkPlugins links plugin binaries into folders of the home: pulumi overlooks a folder that is itself a link.
func linkPlugins(t *testing.T, from, to string) {
	t.Helper()
	binaries, err := filepath.Glob(filepath.Join(from, "*", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, binaries, "no plugins below %s", from)
	for _, binary := range binaries {
		folder := filepath.Join(to, filepath.Base(filepath.Dir(binary)))
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.Symlink(binary, filepath.Join(folder, filepath.Base(binary))))
	}
}

func loadStackConfig(t *testing.T, file string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var document struct {
		Config map[string]any `json:"config"`
	}
	require.NoError(t, yaml.Unmarshal(content, &document))
	return document.Config
}

// section returns the object under holdfast:<name>, made if there is none.
func (s *stack) section(name string) map[string]any {
	section, ok := s.config["holdfast:"+name].(map[string]any)
	if !ok {
		section = map[string]any{}
		s.config["holdfast:"+name] = section
	}
	return section
}

func (s *stack) setTenants(t *testing.T, tenants ...tenant) {
	t.Helper()
	s.config["holdfast:tenants"] = tenants
	s.save(t)
}

func (s *stack) save(t *testing.T) {
	t.Helper()
	content, err := yaml.Marshal(map[string]any{"config": s.config, "encryptionsalt": s.salt})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.file, content, 0o600))
}

func (s *stack) pulumi(args ...string) command {
	args = append([]string{"--non-interactive"}, args...)
	return command{path: s.cli, args: args, dir: s.dir, env: s.env, timeout: 6 * time.Minute}
}

func (s *stack) update(kind string, args ...string) command {
	return s.pulumi(append([]string{kind, "--stack", "dev", "--config-file", s.file, "--diff"}, args...)...)
}

func (s *stack) up(args ...string) command {
	return s.update("up", append([]string{"--yes", "--skip-preview"}, args...)...)
}

func (s *stack) preview(args ...string) command { return s.update("preview", args...) }

func (s *stack) destroy() command { return s.update("destroy", "--yes", "--skip-preview") }

// outputs returns the outputs of the stack.
func (s *stack) outputs(t *testing.T) map[string]any {
	t.Helper()
	outputs := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(s.pulumi("stack", "output", "--json", "--stack", "dev").must(t)), &outputs))
	return outputs
}

// with returns a copy of the tenant with some fields changed.
func (tn tenant) with(fields tenant) tenant {
	changed := maps.Clone(tn)
	maps.Copy(changed, fields)
	return changed
}
