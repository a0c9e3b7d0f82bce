// Package postgres opens the connection pool with the timeouts of the settings,
// runs transactions, and tells transient faults (a lost connection, a
// deadlock, a server that restarts) from faults of the statement.
//
// It knows no table. Packages that own tables take a [DB] and keep their SQL
// beside the function that needs it.
package postgres
