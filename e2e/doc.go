// Package e2e has only tests: the real binaries, as processes, on a real
// Postgres and Redis, used from outside over HTTP. Clocks and servers are not
// simulated; processes are killed with SIGKILL, stopped with SIGSTOP, servers
// are restarted and emptied.
//
// Every test ends with the audit: no invariant may be broken.
package e2e
