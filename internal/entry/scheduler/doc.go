// Package scheduler runs the sweeps of package recovery at their intervals. Of
// several schedulers one leads at a time: the one with a lock in Redis, which it
// extends. It stops when the lock is lost. The lock only saves work: two leaders do
// no harm, and while Redis cannot say who leads, every scheduler sweeps.
package scheduler
