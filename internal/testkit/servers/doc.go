// Package servers gives tests an empty database, a namespace in Redis, and settings.
//
// The servers are those of TRIPRIZE_TEST_POSTGRES_URL and TRIPRIZE_TEST_REDIS_URL, or
// private ones for the run: packages that use them call Main from TestMain. Private ones
// run without fsync and, where there is room, in memory, so no test can show what survives
// a power cut. A database is emptied for the next test, or dropped if its schema was
// changed.
package servers
