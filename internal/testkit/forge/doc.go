// Package forge makes RFC 3161 tokens that no authority would sign, for tests of verifiers.
//
// A [Token] of the zero value holds. Each structure of it, and of a [Certificate], has a name, by
// which [Changes] replace it or put something behind its last member; what is signed is signed
// with the change in it. [Cases] are tokens on both sides of every rule in docs/draw.md.
package forge
