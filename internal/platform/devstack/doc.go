// Package devstack runs what Triprize needs on a machine that has nothing
// prepared: a private Postgres cluster and Redis in a folder of their own, on
// free loopback ports, and the real binaries as supervised child processes. It
// serves `triprize dev`, `triprize demo` and the tests; nothing in production
// imports it.
//
// A folder is used by one Stack at a time (a file lock, which dies with its
// holder). Servers that a killed run left behind are found by their pid files
// and stopped before new ones start. On Linux children also die with the
// process that started them.
package devstack
