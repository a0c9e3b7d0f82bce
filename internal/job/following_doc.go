// Package following notifies clients of a process of changed jobs, with few queries. It
// never writes to Postgres.
package job
