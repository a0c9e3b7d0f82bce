// Package typescript has only the tests, in Go, of the client beside it.
//
// They compile it, run its own tests (folder test) with Node.js, sell with it on a real
// fleet, and pack it as it is published.
package typescript
