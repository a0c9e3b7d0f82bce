package client

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls one server with one credential. Many goroutines may use it at once.
// Create one and keep it, so that connections are reused.
type Client struct {
	base       string // without a slash at the end
	credential string
	userAgent  string
	operator   string // for the audit trail; empty: none
	http       *http.Client
	timeout    time.Duration
	maxAnswer  int64
	retry      RetryPolicy
}

// Option changes a setting of New.
type Option func(*Client)

// WithHTTPClient uses another http.Client: for a proxy, certificates, or more
// connections. Its Timeout is ignored, see WithTimeout. It should keep as many idle
// connections as requests are sent at once.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithUserAgent names the program in the server's log.
func WithUserAgent(name string) Option { return func(c *Client) { c.userAgent = name } }

// WithOperator names the person who acts with an operator's key, for the audit trail. It proves nothing.
func WithOperator(name string) Option { return func(c *Client) { c.operator = name } }

// WithRetry replaces the RetryPolicy; its zero fields keep their defaults.
func WithRetry(p RetryPolicy) Option {
	return func(c *Client) {
		c.retry = RetryPolicy{
			Attempts: cmp.Or(p.Attempts, c.retry.Attempts), Elapsed: cmp.Or(p.Elapsed, c.retry.Elapsed),
			First: cmp.Or(p.First, c.retry.First), Longest: cmp.Or(p.Longest, c.retry.Longest),
		}
	}
}

// WithTimeout bounds each attempt, 15 s by default. The wait of WithWait comes on
// top. A stream that is silent for four times as long is closed and opened again.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithMaxAnswer bounds the bytes of one answer, 64 MiB by default. The board of a
// campaign with a thousand layers has about 40 MiB.
func WithMaxAnswer(bytes int64) Option { return func(c *Client) { c.maxAnswer = bytes } }

// New returns a client of the server at baseURL, such as
// "https://triprize.example.com". The credential is an API key (tp_…) or a JSON
// Web Token.
func New(baseURL, credential string, options ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("client: the base URL must be like https://triprize.example.com")
	}
	if credential == "" || strings.ContainsFunc(credential, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("client: the credential must be an API key or a JSON Web Token")
	}
	c := &Client{
		base: strings.TrimRight(base.String(), "/"), credential: credential, userAgent: "triprize-go",
		timeout: 15 * time.Second, maxAnswer: 64 << 20, retry: defaultRetry,
	}
	for _, option := range options {
		option(c)
	}
	if c.timeout <= 0 || c.maxAnswer <= 0 {
		return nil, errors.New("client: the timeout and the bound of an answer must be positive")
	}
	if err := c.retry.check(); err != nil {
		return nil, err
	}
	sender := http.Client{Transport: pooled()}
	if c.http != nil {
		sender = *c.http
	}
	sender.Timeout = 0
	if sender.CheckRedirect == nil { // a redirect may turn a POST into a GET, and would get the credential
		sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	c.http = &sender
	return c, nil
}

// pooled is the default transport with more than two idle connections per host.
func pooled() http.RoundTripper {
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // the program has replaced it
	}
	t := standard.Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	return t
}
