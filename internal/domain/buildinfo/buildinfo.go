// Package buildinfo has the release of this program.
//
// `make build` links it into the binaries, from git; otherwise it is Go's own build information. It is in --version,
// the log at start, the metric triprize_build_info and the User-Agent of our requests.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -ldflags "-X triprize/internal/domain/buildinfo.version=…".
var version string

// unknown is the version of a program without build information.
const unknown = "devel"

// Version returns a version like v1.4.0-3-g45f79ad, or "devel". It is never empty.
func Version() string {
	build, _ := debug.ReadBuildInfo()
	return versionOf(version, build)
}

// versionOf returns the linked version, else that of the main module.
func versionOf(linked string, build *debug.BuildInfo) string {
	module := ""
	if build != nil && build.Main.Version != "(devel)" {
		module = build.Main.Version
	}
	return cmp.Or(linked, module, unknown)
}

// Line returns the output of --version: program, release, Go version and platform.
func Line(program string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)", program, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// UserAgent returns the User-Agent of our requests.
func UserAgent() string { return "triprize/" + Version() }
