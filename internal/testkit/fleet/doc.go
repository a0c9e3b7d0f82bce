// Package fleet gives tests a whole system, and a client of its API.
//
// Its processes run inside the test. Tests that kill, stop or signal a process, or use a
// failpoint, ask for real ones (Options.Binaries).
//
// Every answer is checked against the contract. When a test ends, package audit must find
// nothing, and Postgres must have met no deadlock.
package fleet
