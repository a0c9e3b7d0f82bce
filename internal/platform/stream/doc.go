// Package stream sends server-sent events: the text/event-stream format of the
// WHATWG HTML standard, section 9.2, and the bounds of a process that holds many
// of them open.
//
// A stream begins with a hint when to come back (retry), carries events, and a
// comment after each silence so that a client that is gone is found and proxies
// keep the connection. It ends after an event that is marked as the last, when
// its source is closed, when it is too old, or when the server drains: always
// between two events. The client comes back with the id of the last event it
// got. Hint and age vary from stream to stream, lest all come back at once.
//
// Nothing is queued here: a stream takes the next event when the one before is
// written, so the source decides what a slow client misses. It should be a
// channel of one place that holds the newest, as watch.Subscription is.
//
// A client that stops reading without hanging up holds its stream in a write;
// only a deadline on its connection, which is the server's, ends that.
package stream
