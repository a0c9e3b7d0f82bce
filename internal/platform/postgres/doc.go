// Package postgres opens the pool, runs transactions, and recognizes transient faults.
//
// A transient fault is a lost connection, a deadlock, or a restart of the server. The package uses no
// tables. Packages that own tables take a [DB] and have their SQL next to the function that needs it.
package postgres
