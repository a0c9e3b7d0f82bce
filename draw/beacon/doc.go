// Package beacon computes with drand's public randomness: when a round is due, and whether
// a signature is its own.
//
// The scheme is bls-unchained-g1-rfc9380. Nobody can know a round before it is due, and
// nobody can choose it: a round has one valid signature, and most members of the network
// must make it. The package asks no clock and no network.
//
// Sources: drand's code and documentation; RFC 9380 (hash to curve).
package beacon
