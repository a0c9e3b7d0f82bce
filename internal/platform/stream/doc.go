// Package stream sends server-sent events ([Relay]).
//
// The format is section 9.2 of the WHATWG HTML standard. A stream begins with the reconnect delay (retry).
// Events follow, with a comment as heartbeat in between. It ends after the last event, when its source is
// closed, at its maximum age, when its key is revoked, or at shutdown, always between two events. An event
// named end has the reason. Reconnect delay and maximum age have jitter, so that clients do not reconnect all
// at once.
//
// Nothing is queued here. The source should be a channel with only the newest value. A client that does not
// read blocks its stream in a write until the server's write deadline.
package stream
