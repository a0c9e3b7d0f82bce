// Package e2e has only tests: the real binaries, on a real Postgres and Redis, over HTTP.
//
// Processes are killed with SIGKILL and stopped with SIGSTOP, servers are restarted and
// emptied. Every test ends with the audit.
package e2e
