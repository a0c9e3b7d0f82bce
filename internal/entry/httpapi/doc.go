// Package httpapi is the entry point for HTTP ([Server]).
//
// It authenticates the caller, charges it to its rate limit, reads the body within its
// bound, checks the request against the contract (api/openapi.yaml), and then accepts a
// job, runs a command, or reads. The order of these steps is a promise (docs/adr/0013).
//
// A request for a job is answered only after the job is committed. It waits for a
// worker only if the client wants it (Prefer: wait), and for Redis only within the
// limits of the settings. Every error is a problem document. The status of
// each kind of error is in resource/problem.go; the roles that may call an operation are
// in the contract (x-roles).
package httpapi
