// Package stream sends server-sent events ([Relay]).
//
// The format is section 9.2 of the WHATWG HTML standard. A stream begins with the time of
// a reconnect (retry). Then come events, and a comment after each silence. It ends after
// the last event, when its source is closed, at its maximum age, when its key is revoked, or at shutdown, always
// between two events. An event named end has the reason. Retry time and age are random
// within limits, so clients do not reconnect all at once.
//
// Nothing is queued here. The source should be a channel with only the newest value, as
// that of progress.Subscription. A client that does not read blocks its stream in a
// write until the server's write deadline.
package stream
