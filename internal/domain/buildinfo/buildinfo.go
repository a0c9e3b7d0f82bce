// Package buildinfo has the release of this program.
//
// `make build` links it into the binaries, from git. It is in --version, the log at start, the metric
// triprize_build_info and the User-Agent of our requests.
package buildinfo

import (
	"cmp"
	"fmt"
	"runtime"
)

// version is set by the linker: -ldflags "-X triprize/internal/domain/buildinfo.version=…".
var version string

// Version returns a version like v1.4.0-3-g45f79ad, or "devel" for a program that was built otherwise.
func Version() string { return cmp.Or(version, "devel") }

// Line returns the output of --version: program, release, Go version and platform.
func Line(program string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)", program, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// UserAgent returns the User-Agent of our requests.
func UserAgent() string { return "triprize/" + Version() }
