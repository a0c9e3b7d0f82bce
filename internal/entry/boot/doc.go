// Package boot is what every process of the fleet is made of: it reads flags and
// settings, sets up logs and metrics, opens Postgres and Redis, and runs one of
// API, Worker and Scheduler. The mains in cmd call nothing else.
//
// A process waits for Postgres and its schema at start, for postgres.start_wait
// at most: it is alive (/healthz), not ready (/readyz names what it waits for),
// and logs it. So it does not matter in which order processes and servers start,
// and a Postgres that recovers ends no process. Redis is never waited for: a
// process does its work without it, slower.
package boot
