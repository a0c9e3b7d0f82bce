package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -ldflags "-X triprize/internal/domain/buildinfo.version=…".
var version string

// unknown is the version of a program that nobody has told.
const unknown = "devel"

// Version returns such as v1.4.0-3-g45f79ad, or "devel". It is never empty.
func Version() string {
	build, _ := debug.ReadBuildInfo()
	return versionOf(version, build)
}

// versionOf returns what the linker was told, else what Go knows of the main module.
func versionOf(linked string, build *debug.BuildInfo) string {
	module := ""
	if build != nil && build.Main.Version != "(devel)" {
		module = build.Main.Version
	}
	return cmp.Or(linked, module, unknown)
}

// Line returns what --version prints: the program, its release, and what built it for what.
func Line(program string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)", program, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// UserAgent is how requests to others name this program.
func UserAgent() string { return "triprize/" + Version() }
