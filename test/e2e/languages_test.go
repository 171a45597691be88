//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// consumerSpace is the namespace that the programs in other languages and modules make their tenants in.
const consumerSpace = "consumers"

func (s *selfService) runYAML(t *testing.T) {
	dir := copyFolder(t, filepath.Join(s.env.repository, "test", "consumers", "yaml"))
	program := s.platform.beside(t, "consumer-yaml", dir, "/nowhere", map[string]any{
		"consumer-yaml:namespace":  consumerSpace,
		"consumer-yaml:etcdImage":  s.env.etcdImage,
		"consumer-yaml:kubeconfig": s.cluster.Kubeconfig(),
	})
	// The language's host is found on PATH.
	program.env = append(program.env, "PATH="+strings.Join([]string{s.env.languagesBin, s.env.pulumiBin, os.Getenv("PATH")}, ":"))
	plugin := filepath.Join(s.env.ownBin, "pulumi-resource-holdfast")
	program.pulumi("plugin", "install", "resource", "holdfast", "0.1.0", "--file", plugin).must(t)
	program.pulumi("package", "add", plugin).must(t)
	s.runConsumer(t, program, "from-yaml")
}

func (s *selfService) runGo(t *testing.T) {
	dir := copyFolder(t, filepath.Join(s.env.repository, "test", "consumers", "go"))
	run := func(args ...string) {
		command{path: "go", args: args, dir: dir, timeout: 3 * time.Minute}.must(t)
	}
	run("mod", "edit", "-replace", "github.com/holdfast-io/holdfast="+s.env.repository)
	run("mod", "tidy")
	program := s.platform.beside(t, "consumer-go", dir, s.cluster.Kubeconfig(), map[string]any{
		"consumer-go:namespace": consumerSpace,
		"consumer-go:etcdImage": s.env.etcdImage,
	})
	s.runConsumer(t, program, "from-go")
}

// runTypeScript compiles the generated SDK and the program against it, and runs the program by the SDK's own runner.
func (s *selfService) runTypeScript(t *testing.T) {
	dir, hosts := t.TempDir(), t.TempDir()
	checkTypeScript(t, s.env, dir)
	command{
		path: "go", args: []string{"build", "-o", filepath.Join(hosts, "pulumi-language-nodejs"), "./test/nodehost"},
		dir: s.env.repository, timeout: 3 * time.Minute,
	}.must(t)
	program := s.platform.beside(t, "consumer-typescript", dir, s.cluster.Kubeconfig(), map[string]any{
		"consumer-typescript:namespace": consumerSpace,
		"consumer-typescript:etcdImage": s.env.etcdImage,
	})
	program.env = append(program.env, "PATH="+strings.Join([]string{hosts, s.env.pulumiBin, os.Getenv("PATH")}, ":"))
	plugin := filepath.Join(s.env.ownBin, "pulumi-resource-holdfast")
	program.pulumi("plugin", "install", "resource", "holdfast", "0.1.0", "--file", plugin).must(t)
	s.runConsumer(t, program, "from-typescript")
}

// runConsumer brings a program's tenant up, uses it, and takes it down, before what it needs.
func (s *selfService) runConsumer(t *testing.T, program *stack, tenant string) {
	t.Helper()
	key := types.NamespacedName{Namespace: consumerSpace, Name: tenant}
	program.preview().must(t)
	program.up().must(t)
	require.Equal(t, tenant+"."+consumerSpace+".svc:7400", program.outputs(t)["endpoint"])
	s.useLease(t, program, key)
	program.up("--expect-no-changes").must(t)
	program.destroy().must(t)
}

// TestE2EPackageSchema reads the package's schema as Pulumi does, from its sources and from its binary.
func TestE2EPackageSchema(t *testing.T) {
	env := loadEnvironment(t)
	s := newStack(t, env, "/nowhere")
	committed, err := os.ReadFile(filepath.Join(env.repository, "components", "provider", "schema.json"))
	require.NoError(t, err)
	var want, got map[string]any
	require.NoError(t, json.Unmarshal(committed, &want))
	for _, source := range []string{
		filepath.Join(env.repository, "components", "cmd", "pulumi-resource-holdfast"),
		filepath.Join(env.ownBin, "pulumi-resource-holdfast"),
	} {
		output := s.pulumi("package", "get-schema", source).must(t)
		require.NoError(t, json.Unmarshal([]byte(output), &got), "%s: %s", source, output)
		require.Equal(t, want["resources"], got["resources"], source)
		require.Equal(t, want["types"], got["types"], source)
	}
}

// TestE2EPythonSDK generates the SDK of Python, and has a type checker look at it and at the program in test/consumers that uses
// it.
func TestE2EPythonSDK(t *testing.T) {
	env := loadEnvironment(t)
	work := t.TempDir()
	generateSDKs(t, env, work)
	checkPython(t, env, work)
}

// generateSDKs writes the SDKs of other languages, from the schema.
func generateSDKs(t *testing.T, env environment, work string) {
	t.Helper()
	command{
		path:    filepath.Join(env.languagesBin, "sdkgen"),
		args:    []string{"-schema", filepath.Join(env.repository, "components", "provider", "schema.json"), "-out", filepath.Join(work, "sdk")},
		timeout: 3 * time.Minute,
	}.must(t)
}

// checkTypeScript makes a folder of the program, with the SDK that is generated and compiled; and the program is checked against it.
func checkTypeScript(t *testing.T, env environment, work string) {
	t.Helper()
	generateSDKs(t, env, work)
	run := func(path string, args ...string) {
		command{path: path, args: args, dir: work, timeout: 5 * time.Minute}.must(t)
	}
	consumer := filepath.Join(env.repository, "test", "consumers", "typescript")
	copyInto(t, consumer, work)
	run("npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	compiler := filepath.Join(work, "node_modules", ".bin", "tsc")
	run(compiler, "-p", filepath.Join(work, "sdk", "nodejs"))
	// As it is published: the compiled files, and beside them the file from which they take the package's version.
	compiled := filepath.Join(work, "sdk", "nodejs", "bin")
	require.NoError(t, os.Rename(filepath.Join(work, "sdk", "nodejs", "package.json"), filepath.Join(compiled, "package.json")))
	installed := filepath.Join(work, "node_modules", "@holdfast-io", "holdfast")
	require.NoError(t, os.MkdirAll(filepath.Dir(installed), 0o755))
	require.NoError(t, os.Rename(compiled, installed))
	run(compiler, "-p", work)
}

func checkPython(t *testing.T, env environment, work string) {
	sdk := filepath.Join(work, "sdk", "python")
	consumer := filepath.Join(env.repository, "test", "consumers", "python")
	command{path: "/usr/bin/python3", args: []string{"-m", "compileall", "-q", sdk}, timeout: time.Minute}.must(t)
	command{
		path: "/usr/bin/mypy",
		args: []string{
			"--config-file", filepath.Join(consumer, "mypy.ini"), "--cache-dir", filepath.Join(work, "mypy"),
			"holdfast_pulumi", filepath.Join(consumer, "__main__.py"),
		},
		dir:     sdk,
		env:     []string{"MYPYPATH=" + sdk},
		timeout: 3 * time.Minute,
	}.must(t)
}

func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	copyInto(t, from, to)
	return to
}

func copyInto(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
}
