// Package fault has the error codes of the whole system.
//
// An [Error] carries a stable, kebab-case [Code] that programs act on, a Message
// for people, and the cause. Each Code has one [Kind]. From the Kind, package
// httpapi derives the HTTP status, and package job whether a refusal is recorded
// under its idempotency key. No code parses the text of an error.
package fault
