// Package stream sends server-sent events: the text/event-stream format of the
// WHATWG HTML standard, section 9.2 ([Serve], [Relay]). How many are open at once is
// bounded elsewhere (package slots).
//
// A stream begins by telling the client when to connect again (retry). Then come
// events, and a comment after each silence, so that dead clients are noticed and
// proxies keep the connection. A stream ends after an event that is marked as the
// last, when its source is closed, when it is too old, or when the server shuts
// down; always between two events. It says why, in an event named end, so that the client
// can tell an end from a cut. The client connects again with the id of the last event it got. Retry time and age are random within limits, so that clients
// do not all come back at once.
//
// Nothing is queued here: a stream takes the next event when the one before is
// written, so the source decides what a slow client misses. The source should be a
// channel that holds only the newest value, as that of subscription.Subscription does.
//
// A client that stops reading but does not disconnect blocks its stream in a write.
// Only a write deadline ends that, which the server must set on the connection.
package stream
