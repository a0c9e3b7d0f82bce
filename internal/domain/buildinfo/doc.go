// Package buildinfo knows which release this program is. `make build` writes it into the
// binaries, from git; without that it is what Go knows of the module. It is shown by
// --version, in the log at the start of a process, in the metric triprize_build_info and
// in the User-Agent of requests to others.
package buildinfo
