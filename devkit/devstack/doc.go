// Package devstack runs private servers and the real binaries for `triprize-dev dev`, demo and
// tests.
//
// A [Stack] is a Postgres cluster and a Redis in one folder, on free loopback ports. A
// [Fleet] is the binaries as supervised child processes, with the stack and the simulators
// that end with them. Nothing in production imports this package.
//
// A folder has one Stack at a time, by a file lock that ends with its process. Servers
// that a killed run left behind are found by their pid files and stopped. On Linux
// children end with their parent.
package devstack
