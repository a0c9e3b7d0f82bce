package stripe

import "net/http"

// Through sends the requests of a client through base.
func (c *Client) Through(base http.RoundTripper) { c.http.Transport = transport{base} }

// Calls are the kinds of calls, each with a line of its own.
var Calls = len(calls)
