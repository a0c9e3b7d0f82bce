package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls one server with one credential. It may be used by many goroutines
// at once; make one and keep it, so that connections are reused.
type Client struct {
	base       string // without a slash at the end
	credential string
	userAgent  string
	http       *http.Client
	timeout    time.Duration
	maxAnswer  int64
	retry      RetryPolicy
}

// Option changes a Client that New makes.
type Option func(*Client)

// WithHTTPClient sends with another http.Client: for a proxy, certificates, or
// more connections. Its Timeout is not used, see WithTimeout; it should keep
// idle connections for as many requests as are sent at once.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithUserAgent names the program in the server's log.
func WithUserAgent(name string) Option { return func(c *Client) { c.userAgent = name } }

// WithRetry replaces the RetryPolicy; what is zero in it keeps its default.
func WithRetry(p RetryPolicy) Option {
	return func(c *Client) {
		c.retry = RetryPolicy{
			Attempts: cmp.Or(p.Attempts, c.retry.Attempts), Elapsed: cmp.Or(p.Elapsed, c.retry.Elapsed),
			First: cmp.Or(p.First, c.retry.First), Longest: cmp.Or(p.Longest, c.retry.Longest),
		}
	}
}

// WithTimeout bounds each attempt, 15 s by default. Where the server is asked to
// wait for a job, that wait comes on top. A stream is given up and taken up again
// when it is silent for four times as long.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = d } }

// WithMaxAnswer bounds the bytes of one answer, 64 MiB by default: the board of a
// campaign of a thousand layers has about 40.
func WithMaxAnswer(bytes int64) Option { return func(c *Client) { c.maxAnswer = bytes } }

// New returns a client of the server at baseURL, such as
// "https://triprize.example.com". The credential is an API key (tp_…) or a JSON
// Web Token.
func New(baseURL, credential string, options ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("client: base URL: %w", err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
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
		return nil, errors.New("client: a timeout and the bound of an answer must be more than nothing")
	}
	if err := c.retry.check(); err != nil {
		return nil, err
	}
	sender := http.Client{Transport: pooled()}
	if c.http != nil {
		sender = *c.http
	}
	sender.Timeout = 0
	if sender.CheckRedirect == nil { // a redirected POST becomes a GET, and the credential goes along
		sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	c.http = &sender
	return c, nil
}

// pooled is the default transport with room for more than two idle connections.
func pooled() http.RoundTripper {
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport // the program has replaced it: its choice
	}
	t := standard.Clone()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	return t
}
