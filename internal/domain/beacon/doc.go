// Package beacon is a chain of public randomness of drand, scheme
// bls-unchained-g1-rfc9380, as arithmetic: which round is due when, what identifies a
// chain, and whether a signature is that of a round. It asks no clock and no network.
//
// Nobody can know a round before it is due, and nobody can choose it: there is one valid
// signature per round, and it takes most of the members of the network to make it.
//
// Source: drand's own sources and its documentation of the scheme; RFC 9380 (hash to curve).
package beacon
