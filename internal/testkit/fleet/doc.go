// Package fleet gives tests a whole Triprize, and helpers that use it over HTTP as
// an app does. Its processes run inside the test: the same code as in the
// binaries, under the race detector, in a fraction of the time. Tests that kill,
// stop or signal a process, or want it to die at a failpoint, ask for real ones
// (Options.Binaries).
//
// Every answer is checked against the contract. When a test ends, package audit
// must find nothing, and Postgres must have met no deadlock.
package fleet
