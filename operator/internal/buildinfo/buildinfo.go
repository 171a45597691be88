// Package buildinfo says which build a binary is.
package buildinfo

import "runtime/debug"

// Version is what the linker set (-X main.version=...), or if that is nothing the version of the module, or the commit the
// binary was built from, or "devel".
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return fromBuild(info)
}

func fromBuild(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return setting.Value
		}
	}
	return "devel"
}
