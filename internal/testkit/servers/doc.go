// Package servers gives tests a migrated, empty database on a real Postgres, a
// namespace of their own on a real Redis, and settings that lead to them. It is
// imported by tests only, and knows nothing of campaigns: package fixture does.
//
// The servers are those named in TRIPRIZE_TEST_POSTGRES_URL and
// TRIPRIZE_TEST_REDIS_URL, or private ones that are started on first use and
// stopped at the end: packages that use them call Main from TestMain.
package servers
