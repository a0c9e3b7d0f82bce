// Package cli is the command triprize, the operator's tool ([Run]).
//
// It migrates the database, manages API keys, audits the data, and lists and resolves
// payments and refunds that wait for an operator. It also runs a whole system for
// development (dev), one sale (demo), and test servers (with-servers).
package cli
