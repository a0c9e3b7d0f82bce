// Package body reads the bodies of requests within bounds of length, memory and work.
// Memory and work are divided among clients.
//
// A body that passes is canonical JSON that fits the contract: the same bytes are checked,
// fingerprinted and read.
package body
