// Package boot starts the processes of the fleet. It reads flags and settings,
// sets up logs and metrics, opens Postgres and Redis ([Process]), and runs one of
// [API], [Worker] and [Scheduler]. The mains of these three call nothing else.
//
// At start a process waits for Postgres and its schema, for at most
// postgres.start_wait. Meanwhile it is alive (/healthz) but not ready (/readyz says
// what it waits for). So processes and servers may start in any order, and a
// process survives a Postgres that recovers from a crash. No process waits for
// Redis: it does its work without it, but more slowly.
package boot
