// Package postgres opens the pool, runs transactions, and recognizes transient faults.
//
// A transient fault is a lost connection, a deadlock, or a server that restarts. The
// package knows no table. Packages that own tables take a [DB] and keep their SQL beside
// the function that needs it.
package postgres
