// Package cli is the command triprize, the operator's tool. It migrates the
// database, creates API keys, audits the data, lists and ends the payments and refunds
// that wait for an operator, and asks processes whether they are ready. It also runs the whole system on a developer's machine (dev) or for one
// sale (demo), and test servers (with-servers). [Run] is its entry point.
package cli
