package gitsource_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/stacks/internal/gitsource"
)

// repository makes a repository with two commits, of which the first has the tag v1.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch", "main")
	write(t, filepath.Join(dir, "env/dev/a/x.yaml"), "one\n")
	write(t, filepath.Join(dir, "env/dev/README.md"), "not a manifest")
	write(t, filepath.Join(dir, "env/prod/a/x.yaml"), "another\n")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "one")
	git(t, dir, "tag", "v1")
	write(t, filepath.Join(dir, "env/dev/a/x.yaml"), "two\n")
	write(t, filepath.Join(dir, "env/dev/b/y.yaml"), "new\n")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "two")
	return dir
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
	output, err := cmd.CombinedOutput()
	require.NoErrorf(t, err, "git %v: %s", args, output)
}

func write(t *testing.T, file, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

func TestBothReadAFolderAtARevision(t *testing.T) {
	dir := repository(t)
	old, now := gitsource.Files{"a/x.yaml": []byte("one\n")}, gitsource.Files{"a/x.yaml": []byte("two\n"), "b/y.yaml": []byte("new\n")}
	for revision, want := range map[string]gitsource.Files{"v1": old, "main": now} {
		files, err := gitsource.Local(t.Context(), dir, revision, "env/dev")
		require.NoError(t, err)
		require.Equal(t, want, files, revision)

		files, commit, err := gitsource.Remote(t.Context(), dir, revision, "env/dev")
		require.NoError(t, err)
		require.Equal(t, want, files, revision)
		require.Len(t, commit, 40)
	}
}

func TestAFolderMayBeTheWholeRepository(t *testing.T) {
	dir := repository(t)
	want := gitsource.Files{"env/dev/a/x.yaml": []byte("one\n"), "env/prod/a/x.yaml": []byte("another\n")}
	files, err := gitsource.Local(t.Context(), dir, "v1", ".")
	require.NoError(t, err)
	require.Equal(t, want, files)
	files, _, err = gitsource.Remote(t.Context(), dir, "v1", ".")
	require.NoError(t, err)
	require.Equal(t, want, files)
}

func TestAFolderThatIsNotThereIsEmpty(t *testing.T) {
	dir := repository(t)
	files, err := gitsource.Local(t.Context(), dir, "main", "env/moon")
	require.NoError(t, err)
	require.Empty(t, files)
	files, _, err = gitsource.Remote(t.Context(), dir, "main", "env/moon")
	require.NoError(t, err)
	require.Empty(t, files)
}

func TestARevisionThatIsNotThereIsAnError(t *testing.T) {
	dir := repository(t)
	for _, revision := range []string{"v9", "--output=x"} {
		_, err := gitsource.Local(t.Context(), dir, revision, "env/dev")
		require.ErrorContains(t, err, revision)
	}
	_, _, err := gitsource.Remote(t.Context(), dir, "v9", "env/dev")
	require.ErrorContains(t, err, "v9")
}

// What Argo CD or Flux would apply as well, or read the folder otherwise for, is read, wherever below the folder it is.
func TestWhateverMayBeAppliedIsRead(t *testing.T) {
	dir := repository(t)
	want := gitsource.Files{"a/x.yaml": []byte("two\n"), "b/y.yaml": []byte("new\n")}
	for _, name := range []string{
		"a/other.yml", "a/other.json", "a/other.jsonnet", "a/deep/er/other.yaml", "a/kustomization.yaml", "a/sub/Kustomization",
		"a/.argocd-source.yaml", "top.yaml",
	} {
		write(t, filepath.Join(dir, "env/dev", name), "of "+name)
		want[name] = []byte("of " + name)
	}
	for _, name := range []string{"a/README.md", "a/deep/notes.txt", "a/yaml", "a/script.sh"} {
		write(t, filepath.Join(dir, "env/dev", name), "not one")
	}
	require.NoError(t, os.Symlink("../../prod/a", filepath.Join(dir, "env/dev/a/link")))
	want["a/link"] = []byte("../../prod/a")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "more")

	files, err := gitsource.Local(t.Context(), dir, "main", "env/dev")
	require.NoError(t, err)
	require.Equal(t, want, files)
	files, _, err = gitsource.Remote(t.Context(), dir, "main", "env/dev")
	require.NoError(t, err)
	require.Equal(t, want, files)
}

// The content is that of Git, not what a checkout would make of it.
func TestContentsAreThoseOfGit(t *testing.T) {
	dir := repository(t)
	write(t, filepath.Join(dir, "env/dev/.gitattributes"), "*.yaml text eol=crlf\n")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message", "attributes")
	files, _, err := gitsource.Remote(t.Context(), dir, "main", "env/dev")
	require.NoError(t, err)
	require.Equal(t, "two\n", string(files["a/x.yaml"]))
}
