// Package boot starts the processes of the fleet.
//
// It reads flags and settings, sets up logs and metrics, opens Postgres and Redis
// ([Process]), and runs [API], [Worker] or [Scheduler]. The mains of these three call
// nothing else.
//
// At start a process waits for Postgres and its schema, for at most postgres.start_wait.
// Meanwhile it is alive (/healthz) and not ready (/readyz says why). So processes and
// servers may start in any order. No process waits for Redis.
package boot
