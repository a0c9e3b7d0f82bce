package stripe

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	stripego "github.com/stripe/stripe-go/v85"

	"triprize/internal/platform/tracing"
)

const (
	maxAnswerBytes = 8 << 20  // a page of 100 events is about 1 MB
	maxHeaderBytes = 64 << 10 // of an answer
	idleConns      = 32
	idleTime       = 60 * time.Second
	dialTime       = 5 * time.Second
)

// newHTTPClient returns a client of bounded connections. The time of a whole call is
// bounded by its context. It speaks HTTP/1.1: with one connection for each request, one
// that hangs delays no other.
func newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: transport{tracing.Transport(&http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: dialTime, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout:    dialTime,
			MaxConnsPerHost:        inFlight,
			MaxIdleConns:           idleConns,
			MaxIdleConnsPerHost:    idleConns,
			IdleConnTimeout:        idleTime,
			MaxResponseHeaderBytes: maxHeaderBytes,
			Protocols:              protocols,
		})},
		// Stripe sends no redirects, and a key must not go to where one leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// exchange is what is known of one HTTP exchange.
type exchange struct {
	reached atomic.Bool // there was a connection: some of the request may have been sent
	status  int         // 0: no answer
	header  http.Header
}

type exchangeKey struct{}

// transport notes in the exchange of the context how far a request came. It bounds the
// answer, and does not tell Stripe about the machine that asks.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{} // of nobody
	}
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.reached.Store(true) }}
	r = r.Clone(httptrace.WithClientTrace(r.Context(), trace))
	r.Header.Del("X-Stripe-Client-User-Agent")
	r.Header.Set("User-Agent", "Stripe/v1 GoBindings/"+stripego.ClientVersion)
	response, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	x.status, x.header = response.StatusCode, response.Header
	response.Body = http.MaxBytesReader(nil, response.Body, maxAnswerBytes)
	return response, nil
}

// CloseIdleConnections is called by the method of http.Client.
func (t transport) CloseIdleConnections() {
	if base, found := t.base.(interface{ CloseIdleConnections() }); found {
		base.CloseIdleConnections()
	}
}

// noted returns a context whose request notes how far it came.
func noted(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, x), x
}
