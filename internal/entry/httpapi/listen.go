package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/httpconn"
)

// maxHead is how large the head of a request may be: a token of the longest kind
// that is accepted (package token), and as much for everything else.
const maxHead = 16 << 10

// slowest is how long the head of a request may take, and a body or the reading of an answer may be slower than 2 KiB/s.
const slowest = 10 * time.Second

// listen opens the door for clients.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	api := s.settings.API
	return httpconn.Listen(ctx, api.Listen, httpconn.Options{
		MaxOpen: api.MaxConnections, MaxPerAddress: api.MaxConnectionsPerAddress, MaxHead: maxHead,
		ReadTimeout: cmp.Or(api.ReadTimeout, slowest), WriteTimeout: cmp.Or(api.WriteTimeout, slowest), IdleTimeout: api.IdleTimeout, Refuse: refusal,
	}, s.registry)
}

// refusals are the problems of requests that no handler gets to see.
var refusals = map[httpconn.Reason]*fault.Error{
	httpconn.TooMany:        fault.New(fault.Overloaded, "too many connections are open; retry later, with the same Idempotency-Key"),
	httpconn.TooSlow:        fault.New(fault.RequestTimeout, "the request did not arrive in time"),
	httpconn.TooLarge:       fault.New(fault.HeadersTooLarge, "the request line and the header fields are larger than the %d KiB that this server accepts", maxHead>>10),
	httpconn.BadRequestLine: fault.New(fault.InvalidRequest, "a request begins with method, target, HTTP/1.1 or HTTP/1.0, and CR LF, with one space between"),
	httpconn.BadHeader:      fault.New(fault.InvalidRequest, "a header line has a name, a colon right after it, a value without control characters, and CR LF; it is not folded"),
	httpconn.BadLength:      fault.New(fault.InvalidRequest, "a request has one Content-Length, which is a number, and no Transfer-Encoding beside it"),
	httpconn.Repeated:       fault.New(fault.InvalidRequest, "a header field that is allowed once is there twice"),
	httpconn.LengthRequired: fault.New(fault.LengthRequired, "send Content-Length; a Transfer-Encoding is not accepted here"),
}

// refusal returns the answer to such a request, after which its connection is closed.
func refusal(reason httpconn.Reason) []byte {
	p := resource.Problem(refusals[reason])
	p.Instance, p.RequestID = "/", uuid.NewString() // what it asked for is not known
	body, _ := json.Marshal(p)                      // it has only strings and numbers
	retry := ""
	if p.Status == http.StatusServiceUnavailable {
		retry = fmt.Sprintf("Retry-After: %d\r\n", minRetryAfter)
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n%s: %s\r\n%s%s: %s\r\n%s: %s\r\nConnection: close\r\n\r\n%s",
		p.Status, http.StatusText(p.Status), len(body), requestIDHeader, p.RequestID, retry, "Cache-Control", notStored, "X-Content-Type-Options", nosniff, body)
}
