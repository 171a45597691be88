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
	git := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
		output, err := cmd.CombinedOutput()
		require.NoErrorf(t, err, "git %v: %s", args, output)
	}
	write := func(name, content string) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	git("init", "--quiet", "--initial-branch", "main")
	write("env/dev/a/x.yaml", "one\n")
	write("env/dev/README.md", "not a manifest")
	write("env/prod/a/x.yaml", "another\n")
	git("add", "--all")
	git("commit", "--quiet", "--message", "one")
	git("tag", "v1")
	write("env/dev/a/x.yaml", "two\n")
	write("env/dev/b/y.yaml", "new\n")
	git("add", "--all")
	git("commit", "--quiet", "--message", "two")
	return dir
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
