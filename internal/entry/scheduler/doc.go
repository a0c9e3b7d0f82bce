// Package scheduler runs the sweeps of package upkeep at their intervals.
//
// One of several schedulers leads: the holder of a lock in Redis, which it extends. It
// stops when the lock is lost. The lock only saves work: two leaders do no harm, and while
// Redis cannot answer, every scheduler sweeps.
package scheduler
