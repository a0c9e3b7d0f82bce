// Package fault is the vocabulary of everything that can go wrong.
//
// An [Error] carries a stable, kebab-case [Code] that programs act on, a Message
// for people, and the cause. The Code fixes the [Kind]. Package httpapi maps the
// Kind to an HTTP status, and package job to whether a refusal is recorded under
// its idempotency key. Nobody reads error text.
package fault
