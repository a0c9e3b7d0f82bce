package timestamp

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/buildinfo"
	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/config"
	"triprize/internal/platform/tracing"
)

// Client asks the authorities of the settings.
type Client struct {
	authorities []authority
	timeout     time.Duration
	http        *http.Client
	answers     *prometheus.CounterVec
	logger      *slog.Logger
}

type authority struct {
	url          string
	host         string // for metrics and the log
	root         fairdraw.Hash
	certificates []*certificate // the root first
}

// New returns a client of the authorities in the settings. It reads their certificates, and
// asks nobody yet.
func New(settings config.Timestamps, registry prometheus.Registerer, logger *slog.Logger) (*Client, error) {
	c := &Client{timeout: settings.Timeout, logger: logger,
		http: &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: 4, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: settings.Timeout, MaxResponseHeaderBytes: 16 << 10},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triprize_timestamp_answers_total",
			Help: "Queries to timestamp authorities, by authority and outcome: token, refused (its answer holds no valid token), or unavailable.",
		}, []string{"authority", "outcome"})}
	for _, listed := range settings.List() {
		a, err := newAuthority(listed)
		if err != nil {
			return nil, fmt.Errorf("timestamp.New: %w", err)
		}
		c.authorities = append(c.authorities, a)
		for _, outcome := range []string{"token", "refused", "unavailable"} {
			c.answers.WithLabelValues(a.host, outcome)
		}
	}
	if err := c.different(); err != nil {
		return nil, err
	}
	if registry != nil {
		registry.MustRegister(c.answers)
	}
	return c, nil
}

// Roots returns the SHA-256 of the root certificate of each authority in the settings, and
// asks nobody.
func Roots(settings config.Timestamps) ([]fairdraw.Hash, error) {
	c, err := New(settings, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return c.Authorities(), nil
}

func newAuthority(listed config.Authority) (authority, error) {
	parsed, err := url.Parse(listed.URL)
	if err != nil {
		return authority{}, err
	}
	text, err := os.ReadFile(listed.File)
	if err != nil {
		return authority{}, fmt.Errorf("the certificates of %s: %w", parsed.Host, err)
	}
	a := authority{url: listed.URL, host: parsed.Host}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := parseCertificate(block.Bytes)
		if err != nil {
			return authority{}, fmt.Errorf("the certificates of %s in %s: %w", parsed.Host, listed.File, err)
		}
		a.certificates = append(a.certificates, certificate)
	}
	if len(a.certificates) == 0 {
		return authority{}, fmt.Errorf("the certificates of %s: %s has none in PEM", parsed.Host, listed.File)
	}
	a.root = a.certificates[0].hash()
	return a, nil
}

// different demands that no two authorities have one root: they would be one authority.
func (c *Client) different() error {
	hosts := make(map[fairdraw.Hash]string)
	for _, a := range c.authorities {
		if other, twice := hosts[a.root]; twice {
			return fmt.Errorf("timestamp.New: %s and %s have one root certificate, and are one authority", other, a.host)
		}
		hosts[a.root] = a.host
	}
	return nil
}

// Authorities returns the SHA-256 of each authority's root certificate, in the order of the
// settings.
func (c *Client) Authorities() []fairdraw.Hash {
	roots := make([]fairdraw.Hash, len(c.authorities))
	for i, a := range c.authorities {
		roots[i] = a.root
	}
	return roots
}

// Stamp asks authorities, named by their roots, all at once for a token over a digest. It
// returns the tokens that Check accepts, and why the others gave none. Both may be there.
func (c *Client) Stamp(ctx context.Context, digest fairdraw.Hash, authorities []fairdraw.Hash) ([]Token, error) {
	tokens := make([]Token, len(authorities))
	failed := make([]error, len(authorities))
	var all sync.WaitGroup
	for i, root := range authorities {
		at := slices.IndexFunc(c.authorities, func(a authority) bool { return a.root == root })
		if at < 0 {
			failed[i] = fmt.Errorf("timestamp.Stamp: the settings have no authority with the root %x", root[:])
			continue
		}
		all.Go(func() { tokens[i], failed[i] = c.stampBy(ctx, c.authorities[at], digest) })
	}
	all.Wait()
	got := make([]Token, 0, len(tokens))
	for i, t := range tokens {
		if failed[i] == nil {
			got = append(got, t)
		}
	}
	return got, errors.Join(failed...)
}

// stampBy asks one authority, and counts how it answers.
func (c *Client) stampBy(ctx context.Context, a authority, digest fairdraw.Hash) (Token, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	der, nonce, err := query(digest)
	if err != nil {
		return Token{}, err
	}
	asking, span := tracing.Call(ctx, "timestamp authority", "server.address", a.host)
	answer, err := c.send(asking, a, der)
	span.End(err)
	if err != nil {
		c.answers.WithLabelValues(a.host, "unavailable").Inc()
		return Token{}, fmt.Errorf("timestamp.Stamp(%s): %w", a.host, err)
	}
	token, err := a.accept(answer, digest)
	if err == nil && (token.nonce == nil || token.nonce.Cmp(nonce) != 0) {
		err = refused("it does not have the nonce of the query")
	}
	if err != nil {
		c.answers.WithLabelValues(a.host, "refused").Inc()
		c.logger.WarnContext(ctx, "a timestamp authority's answer is refused", "authority", a.host, "error", err)
		return Token{}, fmt.Errorf("timestamp.Stamp(%s): %w", a.host, err)
	}
	c.answers.WithLabelValues(a.host, "token").Inc()
	return token, nil
}

// send posts a query and returns the body of the answer.
func (c *Client) send(ctx context.Context, a authority, der []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(der))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/timestamp-query")
	request.Header.Set("Accept", "application/timestamp-reply")
	request.Header.Set("User-Agent", buildinfo.UserAgent())
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxToken+1))
	if err != nil {
		return nil, err
	}
	if len(body) > MaxToken {
		return nil, fmt.Errorf("its answer has more than %d bytes", MaxToken)
	}
	return body, nil
}

// accept returns the token of an answer, with the certificates of its chain, if it holds.
func (a authority) accept(answer []byte, digest fairdraw.Hash) (Token, error) {
	der, err := tokenOf(answer)
	if err != nil {
		return Token{}, err
	}
	if der, err = complete(der, a.root, a.certificates); err != nil {
		return Token{}, err
	}
	return Check(der, digest, []fairdraw.Hash{a.root})
}
