// Package subscription notifies clients of a process of the progress of campaigns: it
// reads all followed campaigns in one query per interval. It never writes to Postgres.
package progress
