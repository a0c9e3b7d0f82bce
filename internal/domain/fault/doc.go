// Package fault has the error codes of the whole system.
//
// An [Error] has a stable [Code] for programs, a Message for people, and its cause. Each Code has one [Kind], which
// decides the HTTP status and whether the error is recorded under its idempotency key. No code parses error texts.
package fault
