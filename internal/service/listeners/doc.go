// Package listeners serves events over a connection, to developers without a public
// address.
//
// A listener is an endpoint without a URL, with one connection at a time.
//
//   - Each event has a position. A client that reconnects with its last position gets
//     everything after it.
//   - A new connection fences off the one before.
//   - A listener without a connection ends after a while, with its events.
package listeners
