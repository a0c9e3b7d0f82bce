// Package buildinfo has the release of this program.
//
// `make build` links it into the binaries, from git; otherwise it is Go's own build information. It is in --version,
// the log at start, the metric triprize_build_info and the User-Agent of our requests.
package buildinfo
