package stripe

import "net/http"

// Through sends the requests of a client through base.
func (c *Client) Through(base http.RoundTripper) { c.http.Transport = transport{base} }
