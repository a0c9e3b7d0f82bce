// Package devstack runs what Triprize needs on a machine that has nothing
// prepared: a private Postgres cluster and Redis in a folder of their own, on
// free loopback ports ([Stack]), and the real binaries as supervised child
// processes ([Fleet]). It is for `triprize dev`, `triprize demo` and the tests;
// nothing in production imports it.
//
// Only one Stack uses a folder at a time: it holds a file lock, which ends with
// its process. Servers that a killed run left behind are found by their pid files
// and stopped before new ones start. On Linux children also end when the process
// that started them ends.
package devstack
