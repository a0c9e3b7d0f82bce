package stripe

import (
	"net/http"
	"time"
)

// Through sends the requests of a client through base.
func (c *Client) Through(base http.RoundTripper) { c.http.Transport = transport{base} }

// AskPatiently gives Redis time to answer on a machine that is busy.
func (c *Client) AskPatiently(budget time.Duration) { c.pace.budget = budget }

// Calls are the kinds of calls, each with a line of its own.
var Calls = len(calls)
