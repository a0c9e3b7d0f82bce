// Package devstack runs private servers and the real binaries for `triprize-dev dev`, demo and
// tests.
//
// A [Stack] is a Postgres and a Redis in one folder, on free loopback ports; with a standby, as a
// Cluster or under Sentinel, it watches them, and is the operator of Postgres. A
// [Fleet] is the binaries as supervised child processes, with the stack and the simulators
// that end with them. Nothing in production imports this package.
//
// A folder has one Stack at a time, by a file lock that ends with its process. Servers
// that a killed run left behind are found by their pid files and stopped. On Linux
// children end with their parent.
package devstack
