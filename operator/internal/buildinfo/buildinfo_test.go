package buildinfo

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	require.Equal(t, "v1.2.3", Version("v1.2.3"))
	require.NotEmpty(t, Version(""))
	require.Equal(t, "v2.0.0", fromBuild(&debug.BuildInfo{Main: debug.Module{Version: "v2.0.0"}}))
	commit := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}}
	require.Equal(t, "abc", fromBuild(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: commit}))
	require.Equal(t, "devel", fromBuild(&debug.BuildInfo{}))
}
