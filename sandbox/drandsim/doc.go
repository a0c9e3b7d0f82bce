// Package drandsim is a simulator of drand, with its own chain and relays on loopback.
//
// It is for development and tests, never for production: its seed predicts every round.
//
//	GET /chains                        the hash of the chain
//	GET /info, /{hash}/info            what verifies it
//	GET /{hash}/public/{round|latest}  a round; without the hash, too; 425 before it is due
//
// A relay does what its [Faults] say: it is late, lies, or is away. They are set by
// [Relay.SetFaults], or over HTTP at the relay's own address, which answers with any faults:
//
//	GET    /control          its faults, and how many requests for rounds it had
//	PUT    /control/faults   {"late_s": 2, "wrong": "random"}: instead of those before
//	DELETE /control/faults   none from now on
//
// Anybody on this machine can set them: there is no key.
package drandsim
