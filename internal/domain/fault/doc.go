// Package fault has the error codes of the whole system.
//
// An [Error] has a stable [Code] for programs, a Message for people, and its cause. Each
// Code has one [Kind]. The Kind decides the HTTP status, and whether a refusal is recorded
// under its idempotency key. No code parses the text of an error.
package fault
