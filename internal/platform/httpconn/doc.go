// Package httpconn stands between the sockets and the HTTP server ([Listen]). It
// bounds what a connection costs before anybody knows whose it is:
//
//   - how many connections there are, in all and from one address;
//   - how slow a client may be: a head must arrive in time, and of a body that is
//     sent, or of an answer that is read, at least [Pace] bytes a second. Only bytes
//     that are waited for count, so a stream that has nothing to say is not slow;
//   - how long a connection may be idle;
//   - what the head of a request looks like: the grammar of RFC 9112, strictly, and
//     a length in Content-Length only. Whoever reads a request more leniently, such as
//     a proxy, must not see another end of it (request smuggling).
//
// A request that breaks a rule is answered here, and its connection closed. Bytes of
// the next request are never handed to the server before it asks for them.
//
// While a request only waits, [Conn.Watch] tells when its client is gone.
package httpconn
