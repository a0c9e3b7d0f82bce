// Package positions encodes the board of a campaign (all its positions) once for all readers.
//
// A [Board] keeps the encoded document. Each reader gets pieces of it: the whole, or what has
// changed since a version ([Board.View]). A user's own positions lie over it. So an answer
// costs its own positions, however long the board is.
package positions
