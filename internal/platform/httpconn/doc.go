// Package httpconn bounds connections of clients before authentication ([Listen]).
//
//   - Number: connections in all, and from one address.
//   - Pace: a head must arrive in time; a body or an answer must move at least [Pace]
//     bytes a second. Only bytes that are waited for count, so a silent stream is not
//     slow. [Conn.EndBodyBy] bounds a body in all.
//   - Idle time.
//   - Grammar: RFC 9112, strictly, and a length in Content-Length only. So no proxy can
//     see another end of a request (request smuggling).
//
// A request that breaks a rule is answered here, and its connection closed. Bytes of the
// next request do not reach the server before it asks for them. While a request waits,
// [Conn.Watch] tells when its client is gone.
package httpconn
