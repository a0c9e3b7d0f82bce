package response

import (
	"bufio"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/stream"
)

// Result answers with a job, or with the result of a command; for a repeated request, with that of
// the first one. It is encoded already.
type Result struct {
	Status     int
	Body       []byte
	Replayed   bool
	Location   string    // of the job, or of the created resource; empty: there is none
	Version    *int64    // of a wallet
	Job        uuid.UUID // zero: it is no job's
	Wait       Prefer    // as it was granted
	RetryAfter int       // seconds; 0 for what is final
}

// Send implements operations.Answer.
func (a Result) Send(c *fiber.Ctx) error {
	if a.Job != uuid.Nil {
		a.Location = "/v1/jobs/" + a.Job.String()
	}
	if a.Location != "" {
		c.Set(fiber.HeaderLocation, a.Location)
	}
	if a.Version != nil {
		c.Set(fiber.HeaderETag, VersionTag(*a.Version))
	}
	if a.Wait.Longest > 0 {
		c.Set("Preference-Applied", a.Wait.String())
	}
	if a.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.Itoa(a.RetryAfter))
	}
	return SendJSON(c, a.Status, a.Replayed, a.Body)
}

// WithSecret adds a secret that was made just now to the answer, which is stored without.
func (a Result) WithSecret(secret string) (Result, error) {
	if secret == "" {
		return a, nil
	}
	var document contract.WebhookEndpoint
	if err := json.Unmarshal(a.Body, &document); err != nil {
		return Result{}, err
	}
	document.Secret = secret
	body, err := json.Marshal(document) //nolint:gosec // the maker of the secret is shown it, once
	a.Body = body
	return a, err
}

// VersionTag is the entity tag of a wallet: its version, for If-Match.
func VersionTag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// SendJSON answers with a document of JSON. Replayed: the answer of the first request with this key.
func SendJSON(c *fiber.Ctx, status int, replayed bool, body []byte) error {
	if replayed {
		c.Set("Idempotent-Replayed", "true")
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).Send(body)
}

// Stream is an event stream, or 204 for a client that has seen the last
// event: browsers then stop reconnecting.
type Stream struct {
	Over     bool
	Call     *call.Call
	Draining context.Context
	Run      func(ctx context.Context, w *bufio.Writer) // returns when the stream ends: with ctx, if not before
	Stop     func()                                     // releases what the stream uses
}

// Send implements operations.Answer.
func (a Stream) Send(c *fiber.Ctx) error {
	if a.Over {
		return c.SendStatus(http.StatusNoContent)
	}
	c.Set(fiber.HeaderContentType, stream.ContentType)
	c.Set(fiber.HeaderCacheControl, "no-store")
	c.Set("X-Accel-Buffering", "no")   // proxies must pass on events at once
	if c.Method() == http.MethodHead { // Fiber would write the end of a body although there must be none
		a.Stop()
		c.Response().Header.SetContentLength(-1) // unknown
		return nil
	}
	c.Context().SetBodyStreamWriter(func(w *bufio.Writer) {
		defer a.Stop()
		present, leave := a.Call.WhilePresent(a.Draining)
		defer leave()
		a.Run(present, w)
	})
	return nil
}

// Pipe sends a body as slowly as its reader reads it, within a time. When it cannot be
// finished, the connection is cut, so that nobody takes a part for the whole.
type Pipe struct {
	Sending context.Context // ends when what is still sent at shutdown is cut off
	Timeout time.Duration
	Release func()                         // called when nothing is sent any more
	Until   func(end func()) (stop func()) // tells when it is to be cut earlier; nil: never
	Write   func(ctx context.Context, w io.Writer) error
	Ended   func(outcome string, err error) // sent, cut (the reader was gone or too slow, or Until says so) or failed
}

// Send sends the body. To HEAD it sends none.
func (p Pipe) Send(c *fiber.Ctx) error {
	if c.Method() == http.MethodHead {
		p.Release()
		c.Response().Header.SetContentLength(-1) // unknown
		return nil
	}
	reader, writer := io.Pipe()
	go p.run(writer)
	c.Context().SetBodyStream(reader, -1)
	return nil
}

// run writes the body. The server closes the pipe when the connection is gone, and waits at
// shutdown until every slot is released.
func (p Pipe) run(w *io.PipeWriter) {
	defer p.Release()
	ctx, cancel := context.WithTimeout(p.Sending, p.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	defer stop()
	if p.Until != nil {
		defer p.Until(cancel)()
	}
	err := p.Write(ctx, w)
	_ = w.CloseWithError(err) // nil: the end
	outcome := "sent"
	switch {
	case err == nil:
	case errors.Is(err, io.ErrClosedPipe), ctx.Err() != nil:
		outcome = "cut"
	default:
		outcome = "failed"
	}
	p.Ended(outcome, err)
}

const (
	sendingBytes = 256 << 20 // of the long answers that a process sends at once
	chunk        = 32 << 10  // what is copied for a connection at a time
)

// LongAnswer is the length of an answer from which on it is counted as being sent. A
// connection may keep a shorter one to itself.
const LongAnswer = 64 << 10

var errCut = errors.New("response: the answer was cut: too much is being sent to slow readers")

// Sending bounds the memory of long answers that are being sent. Bytes that several
// answers share count once. When there are too many, the answers that began first are
// cut: their readers are the slowest.
type Sending struct {
	most int
	cut  prometheus.Counter

	mu      sync.Mutex
	bytes   int
	answers list.List     // of *longAnswer, in the order of their beginning
	shared  map[*byte]int // how many answers use the bytes that begin here
}

// NewSending returns the bound of a process and counts what is cut in registry.
func NewSending(registry prometheus.Registerer) *Sending {
	s := &Sending{most: sendingBytes, shared: make(map[*byte]int), cut: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "triprize_http_answers_cut_total", Help: "Long answers that were cut because too many were read too slowly."})}
	registry.MustRegister(s.cut, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "triprize_http_answer_bytes", Help: "Bytes of long answers that are being sent. Shared bytes count once."},
		func() float64 { s.mu.Lock(); defer s.mu.Unlock(); return float64(s.bytes) }))
	return s
}

// Long is the body of a long answer.
type Long struct {
	Size    int
	Shared  []byte        // many answers are made of these bytes
	Own     int           // bytes that only this answer has
	Pieces  func() []byte // returns the next piece; nil at the end
	Retains int           // bytes that Shared keeps in memory beside itself
}

// Send sends a body with the status that c has.
func (s *Sending) Send(c *fiber.Ctx, body Long) {
	c.Context().SetBodyStream(s.begin(body), body.Size)
}

// Bound makes a body that a handler has set count as being sent, if it is long.
func (s *Sending) Bound(c *fiber.Ctx) {
	response := c.Response()
	if response.IsBodyStream() || len(response.Body()) < LongAnswer {
		return
	}
	body := response.Body()
	rest := body
	s.Send(c, Long{Size: len(body), Shared: body, Pieces: func() []byte {
		piece := rest
		rest = nil
		return piece
	}})
}

func (s *Sending) begin(body Long) *longAnswer {
	a := &longAnswer{sending: s, body: body}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes += body.Own; s.use(body, 1) == 1 {
		s.bytes += len(body.Shared) + body.Retains
	}
	a.element = s.answers.PushBack(a)
	for s.bytes > s.most && s.answers.Len() > 1 {
		s.end(s.answers.Front().Value.(*longAnswer)) //nolint:forcetypeassert // it has no other
		s.cut.Inc()
	}
	return a
}

// use counts answers of shared bytes, and returns how many there are now.
func (s *Sending) use(body Long, by int) int {
	if len(body.Shared) == 0 {
		return 0
	}
	key := &body.Shared[0]
	n := s.shared[key] + by
	if s.shared[key] = n; n == 0 {
		delete(s.shared, key)
	}
	return n
}

// end drops what an answer keeps; s.mu is held.
func (s *Sending) end(a *longAnswer) {
	if a.element == nil {
		return
	}
	s.answers.Remove(a.element)
	a.element = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	s.bytes -= a.body.Own
	if s.use(a.body, -1) == 0 {
		s.bytes -= len(a.body.Shared) + a.body.Retains
	}
	a.body, a.piece, a.isCut = Long{}, nil, true
}

// longAnswer reads a body. It refers to the body only through fields that end clears, so
// that a connection that waits for its reader keeps nothing but one chunk.
type longAnswer struct {
	sending *Sending
	element *list.Element // under sending.mu; nil when the answer has ended

	mu    sync.Mutex
	body  Long
	piece []byte // what is left of it
	isCut bool
}

// Read implements io.Reader.
func (a *longAnswer) Read(p []byte) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isCut {
		return 0, errCut
	}
	for n < len(p) {
		if len(a.piece) == 0 {
			if a.piece = a.body.Pieces(); a.piece == nil {
				return n, io.EOF
			}
		}
		taken := copy(p[n:], a.piece)
		a.piece = a.piece[taken:]
		n += taken
	}
	return n, nil
}

var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// WriteTo implements io.WriterTo.
func (a *longAnswer) WriteTo(w io.Writer) (written int64, err error) {
	buffer := chunks.Get().(*[chunk]byte) //nolint:forcetypeassert // it has no other
	defer chunks.Put(buffer)
	for err == nil {
		n, atEnd := a.Read(buffer[:])
		var sent int
		sent, err = w.Write(buffer[:n])
		written += int64(sent)
		if atEnd != nil && err == nil {
			err = atEnd
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return written, err
}

// Close implements io.Closer.
func (a *longAnswer) Close() error {
	a.sending.mu.Lock()
	defer a.sending.mu.Unlock()
	a.sending.end(a)
	return nil
}
