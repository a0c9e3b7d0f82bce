// Package fault is the vocabulary of everything that can go wrong.
//
// An Error carries a stable, kebab-case Code that programs act on, a Message
// for people, and the cause. The Code fixes the Kind; doors map the Kind to a
// status (one table in httpapi) and the worker maps it to "final" or "retry"
// (one table in worker). Nobody reads error text.
package fault
