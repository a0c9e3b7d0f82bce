// Package httpapi is the HTTP door: it authenticates, checks the form of a
// request, and then accepts a job, runs one command, or reads.
//
// A request that takes work is answered only after its job is committed, and
// never waits for Redis or a worker unless it asks to (Prefer: wait). Every
// error is a problem document; which status a kind of error has stands in one
// table (problem.go), and who may call what in another (routes.go).
package httpapi
