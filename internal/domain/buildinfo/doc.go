// Package buildinfo knows the release of this program.
//
// `make build` writes it into the binaries, from git. Otherwise it is Go's own build
// information. --version, the log at start, the metric triprize_build_info and the
// User-Agent of our requests show it.
package buildinfo
