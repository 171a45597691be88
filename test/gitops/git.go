package gitops

import (
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Branch is the one branch of a repository.
const Branch = "main"

// Git is a repository on a server of its own, and a work tree of it. It is not safe for concurrent use.
type Git struct {
	// URL to clone from, over HTTP on the loopback interface.
	URL string
	// Dir is the work tree: what a test changes there is in the next Commit.
	Dir string

	tb testing.TB
}

// StartGit makes an empty repository and serves it until the test ends.
func StartGit(tb testing.TB) *Git {
	tb.Helper()
	root := tb.TempDir()
	g := &Git{Dir: filepath.Join(tb.TempDir(), "work"), tb: tb}
	bare := filepath.Join(root, "holdfast.git")
	run(tb, root, "init", "--quiet", "--bare", "--initial-branch", Branch, bare)
	// A controller may ask for a commit that no branch has any more.
	run(tb, bare, "config", "uploadpack.allowAnySHA1InWant", "true")
	run(tb, root, "clone", "--quiet", bare, g.Dir)
	run(tb, g.Dir, "checkout", "--quiet", "-B", Branch)
	g.URL = serve(tb, root) + "/holdfast.git"
	return g
}

// serve answers Git's HTTP protocol for the repositories in a folder, by the program that Git has for it.
func serve(tb testing.TB, root string) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("start a Git server: %v", err)
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: &cgi.Handler{
		Path: filepath.Join(run(tb, root, "--exec-path"), "git-http-backend"),
		Dir:  root,
		Env: []string{
			"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}}
	done := make(chan struct{})
	go func() {
		_ = server.Serve(listener) // it ends when it is closed
		close(done)
	}()
	tb.Cleanup(func() {
		_ = server.Close() // connections that are open are given up
		<-done
	})
	return "http://" + listener.Addr().String()
}

// Put makes a folder of the work tree a copy of another one, with nothing else in it.
func (g *Git) Put(folder, from string) {
	g.tb.Helper()
	g.Remove(folder)
	if err := os.CopyFS(filepath.Join(g.Dir, folder), os.DirFS(from)); err != nil {
		g.tb.Fatalf("copy %s: %v", from, err)
	}
}

// Remove removes a file or a folder of the work tree, if it is there.
func (g *Git) Remove(path string) {
	g.tb.Helper()
	if err := os.RemoveAll(filepath.Join(g.Dir, path)); err != nil {
		g.tb.Fatalf("remove %s: %v", path, err)
	}
}

// Replace replaces a text in a file of the work tree, and fails the test when it is not there.
func (g *Git) Replace(path, old, text string) {
	g.tb.Helper()
	file := filepath.Join(g.Dir, path)
	content, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(content), old) {
		g.tb.Fatalf("replace %q in %s (%v):\n%s", old, path, err, content)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(content), old, text)), 0o644); err != nil {
		g.tb.Fatalf("write %s: %v", path, err)
	}
}

// Commit commits the whole work tree, pushes it, and returns the commit. It fails the test when nothing changed.
func (g *Git) Commit(message string) string {
	g.tb.Helper()
	g.git("add", "--all")
	g.git("commit", "--quiet", "--message", message)
	return g.push()
}

// Revert undoes a commit by another one, pushes that, and returns it.
func (g *Git) Revert(commit string) string {
	g.tb.Helper()
	g.git("revert", "--no-edit", commit)
	return g.push()
}

// Tag names the newest commit and pushes the name.
func (g *Git) Tag(name string) {
	g.tb.Helper()
	g.git("tag", name)
	g.git("push", "--quiet", "origin", "refs/tags/"+name)
}

// Head returns the newest commit.
func (g *Git) Head() string {
	g.tb.Helper()
	return g.git("rev-parse", "HEAD")
}

func (g *Git) push() string {
	g.tb.Helper()
	g.git("push", "--quiet", "origin", Branch)
	return g.Head()
}

func (g *Git) git(args ...string) string {
	g.tb.Helper()
	return run(g.tb, g.Dir, args...)
}

// run runs git as somebody in particular, whatever the machine's own configuration says.
func run(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Tester", "GIT_AUTHOR_EMAIL=tester@holdfast.local",
		"GIT_COMMITTER_NAME=Tester", "GIT_COMMITTER_EMAIL=tester@holdfast.local")
	output, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("git %v: %v\n%s", args, err, output)
	}
	return strings.TrimSpace(string(output))
}
