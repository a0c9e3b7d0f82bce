// Package sender sends signed messages to addresses that clients have named.
//
//   - A message is signed as Standard Webhooks 1.0, with every valid key.
//   - A connection is made only to a public address, or to one that a setting allows. The
//     address is checked at the moment of the connection, so DNS rebinding has no effect.
//   - http is for allowed addresses only, https for all.
//   - No redirect, no proxy, no cookie.
//   - A request ends in time and reads a bounded answer.
package sender

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxAnswerBytes  = 64 << 10 // of the body, which is read to use the connection again, and dropped
	maxHeaderBytes  = 64 << 10
	drainTime       = time.Second // for the body, once the status is known
	idleConnections = 32          // per host
	secretPrefix    = "whsec_"
	secretBytes     = 32
)

// NewSecret returns a random secret, as its owner gets it.
func NewSecret() string {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(random)
}

// Message is what is sent.
type Message struct {
	ID      string
	Body    []byte
	Secrets []string // each signs it

	Traceparent string // of W3C Trace Context; empty: none. It is not signed
}

// sign returns the headers of a message that is sent at a time. The library of the standard would
// copy the body for each secret; a test verifies with it.
func (m Message) sign(at time.Time) (http.Header, error) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(m.Secrets))
	for i, secret := range m.Secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
		if err != nil {
			return nil, err
		}
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, m.ID+"."+timestamp+".") // never fails
		_, _ = mac.Write(m.Body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	headers := http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"Triprize-Webhooks/1"},
		"Webhook-Id":        {m.ID},
		"Webhook-Timestamp": {timestamp},
		"Webhook-Signature": {strings.Join(signatures, " ")},
	}
	if m.Traceparent != "" {
		headers.Set("Traceparent", m.Traceparent)
	}
	return headers, nil
}

// Answer is what came of a message.
type Answer struct {
	Status     int           // 0: there was no answer
	RetryAfter time.Duration // as the answer asks; 0: it does not
	Err        error         // why there was no answer, or not the one that was asked for
	Failure    string        // Err, without the details that are for operators alone; empty: Err itself is for everybody
}

// What an app reads about a message without an answer: nothing about the inside of a network.
const (
	Timeout     = "timeout"
	TLS         = "tls"
	Unreachable = "unreachable"
)

// Arrived reports whether the other side has accepted the message.
func (a Answer) Arrived() bool { return a.Err == nil && a.Status >= 200 && a.Status <= 299 }

// Gone reports whether the other side wants no more messages.
func (a Answer) Gone() bool { return a.Err == nil && a.Status == http.StatusGone }

// Unavailable reports whether the other side could not take any message at all: no answer, or
// one that says so.
func (a Answer) Unavailable() bool {
	switch a.Status {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// Text says why the message has not arrived, for its sender; empty: it has arrived.
func (a Answer) Text() string {
	switch {
	case a.Arrived():
		return ""
	case a.Err != nil:
		return a.Err.Error()
	case a.Status >= 300 && a.Status <= 399:
		return fmt.Sprintf("answered %d: redirects are not followed", a.Status)
	}
	return fmt.Sprintf("answered %d", a.Status)
}

// ClientText says why the message has not arrived, as an app may know it: Failure, or the status;
// empty: it has arrived.
func (a Answer) ClientText() string { return cmp.Or(a.Failure, a.Text()) }

// Sender sends messages. Any number of goroutines may use it.
type Sender struct {
	Guard
	timeout      time.Duration
	https, plain *http.Transport // without an http.Client around them: nothing is followed, and a timeout is ours
}

// Options are what tests replace; the zero value is right for everybody else.
type Options struct {
	Resolver  *net.Resolver                          // of names
	Transport func(plain bool, made *http.Transport) // changes the transport before it is used
}

// NewSender returns a Sender whose requests end after timeout.
func NewSender(guard Guard, timeout time.Duration, options Options) *Sender {
	return &Sender{Guard: guard, timeout: timeout, https: newTransport(guard, false, timeout, options), plain: newTransport(guard, true, timeout, options)}
}

func newTransport(guard Guard, plain bool, timeout time.Duration, options Options) *http.Transport {
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: idleTimeout, Control: guard.control(plain), Resolver: options.Resolver}
	transport := &http.Transport{
		Proxy:                  nil, // a proxy would connect in our place, without the guard
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    timeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConnsPerHost:    idleConnections,
		MaxIdleConns:           idleConnections * idleConnections,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // an answer is not worth the bombs
	}
	if options.Transport != nil {
		options.Transport(plain, transport)
	}
	return transport
}

const idleTimeout = 30 * time.Second

// Send sends a message once, and says what came of it. It ends within the timeout, and
// drainTime.
func (s *Sender) Send(ctx context.Context, to string, m Message) Answer {
	return s.post(ctx, to, m, io.Discard)
}

// post is Send, and writes the first bytes of the answer's body.
func (s *Sender) post(ctx context.Context, to string, m Message, answered io.Writer) Answer {
	if err := s.CheckURL(to); err != nil { // the setting may have changed since
		return Answer{Err: fmt.Errorf("the URL %w", err), Failure: Unreachable}
	}
	headers, err := m.sign(time.Now())
	if err != nil {
		return Answer{Err: fmt.Errorf("it could not be signed: %w", err), Failure: Unreachable}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(s.timeout, func() { cancel(errTimeout) })
	defer patience.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(m.Body))
	if err != nil {
		return Answer{Err: errors.New("the URL cannot be used"), Failure: Unreachable}
	}
	request.Header = headers
	transport := s.https
	if request.URL.Scheme == "http" {
		transport = s.plain
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		short := why(ctx, err)
		return Answer{Err: short, Failure: failureOf(short, err)}
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode < http.StatusOK { // 042, which has three digits; or 101, after which no context ends a read
		return Answer{Err: errNoStatus, Failure: Unreachable}
	}
	patience.Reset(drainTime)
	_, _ = io.Copy(answered, io.LimitReader(response.Body, maxAnswerBytes)) // the status has said it
	return Answer{Status: response.StatusCode, RetryAfter: retryAfter(response.Header.Get("Retry-After"), time.Now())}
}

var (
	errTimeout  = errors.New("no answer in time")
	errNoStatus = errors.New("the answer has no final status of HTTP")
)

// why shortens the error of a request: it is stored, and shown to the owner of the endpoint.
func why(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errTimeout) {
		return errTimeout
	}
	if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
		return errTimeout
	}
	if address, ok := errors.AsType[*net.AddrError](err); ok && address.Err == errAddress.Error() {
		return fmt.Errorf("the name leads to %s: %w", address.Addr, errAddress)
	}
	const limit = 400
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + " …"
	}
	return errors.New(text)
}

// failureOf is the class of an error that short describes.
func failureOf(short, err error) string {
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var invalid x509.CertificateInvalidError
	var remote *net.OpError
	switch {
	case errors.Is(short, errTimeout):
		return Timeout
	case errors.As(err, &record), errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, &invalid), errors.Is(err, http.ErrSchemeMismatch),
		errors.As(err, &remote) && remote.Op == "remote error": // an alert of TLS
		return TLS
	}
	return Unreachable
}

// retryAfter reads both forms of Retry-After; 0: there is none.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// Close closes idle connections.
func (s *Sender) Close() {
	s.https.CloseIdleConnections()
	s.plain.CloseIdleConnections()
}

// NewChallenge returns a random text that nobody knows before the message that brings it.
func NewChallenge() string { return rand.Text() }

var errNoEcho = errors.New("the answer is not the challenge")

// Challenge sends a message that brings a challenge. The answer has arrived when it is 2xx and
// its body is the challenge: as a text, or as member challenge of a JSON object. A body that
// only contains the message is no echo.
func (s *Sender) Challenge(ctx context.Context, to string, m Message, challenge string) Answer {
	var body bytes.Buffer
	answer := s.post(ctx, to, m, &body)
	if answer.Arrived() && !echoes(body.Bytes(), challenge) {
		answer.Err = errNoEcho
	}
	return answer
}

func echoes(body []byte, challenge string) bool {
	var object struct {
		Challenge string `json:"challenge"`
	}
	return string(bytes.TrimSpace(body)) == challenge || json.Unmarshal(body, &object) == nil && object.Challenge == challenge
}
