// Package listeners lets a developer hear of events where no address can be reached: a
// listener is an endpoint without a URL, whose events are fetched by one connection at a time.
//
//   - Each event has a position. A client that comes back with the position of the last one
//     it has seen gets everything after it: what was fetched and perhaps not sent comes again.
//   - Whoever comes back fences off the connection before.
//   - A listener that nobody fetches for is over after a while; its events go with it.
package listeners
