// Package body reads the bodies of requests within bounds of length, memory and work.
// Memory and work are divided among clients.
//
// A body that passes is canonical JSON that fits the contract: the same bytes are checked,
// fingerprinted and read.
package body

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"math"
	"mime"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/config"
	"triprize/internal/platform/fair"
	"triprize/internal/platform/httpconn"
	"triprize/internal/platform/openapi"
)

const (
	// AtOnce is what fasthttp reads of a body before it calls a handler. Shorter
	// bodies need no room of their own.
	AtOnce = 8 << 10
	// Room bounds the bytes of all longer bodies that are in memory at once.
	Room = 8 << 20
	// smallBody is the longest body that is checked without waiting for a turn.
	smallBody = 512
	// nothing is the longest body of an operation that has none: {} and some blanks.
	nothing = 1 << 10
	// A request with a selection is written in selectionBody and positionBody for each of its
	// positions, with names and metadata as long as they may be and generous blanks.
	selectionBody = 16 << 10
	positionBody  = 64
)

// Bodies reads the bodies of requests: within a limit of each, and all of them within
// bounds of memory and work, which are divided among owners.
type Bodies struct {
	wait   time.Duration   // for room, for a turn
	arrive time.Duration   // how long one may take that has its room; 0: as long as the pace of its connection allows
	room   *fair.Pool      // bytes of long bodies
	turn   *fair.Semaphore // bodies that are checked at once: half of the processors is for others
}

// New returns Bodies, of which so many bytes are in memory at once.
func New(room int64, wait, arrive time.Duration) Bodies {
	return Bodies{wait, arrive, fair.NewPool(room), fair.New(fair.Options{Total: max(1, runtime.GOMAXPROCS(0)/2), MaxWaiting: math.MaxInt,
		MaxWaitingOf: func(fair.Caller) (ofClient, ofCaller int) { return math.MaxInt, math.MaxInt }})} // the connections bound them
}

// Bounds are those of the body of an operation: what the contract says, or less where
// the settings allow only smaller selections or bodies.
type Bounds struct {
	Length   int
	Elements map[string]int // of some arrays, by JSON pointer
}

// BoundsOf returns the bounds of an operation.
func BoundsOf(o *openapi.Operation, settings config.Settings) Bounds {
	b := Bounds{Length: o.MaxBody}
	selection := func(pointer string, positions int) {
		b.Length = min(b.Length, selectionBody+positionBody*positions)
		b.Elements = map[string]int{pointer: positions}
	}
	switch {
	case !o.HasBody:
		b.Length = nothing
	case o.ID == "requestPurchase":
		selection("/selection/positions", settings.Campaigns.MaxQuantity)
	case o.ID == "createHold":
		selection("/positions", settings.Holds.MaxPositions)
	case o.ID == "createCampaign" || o.ID == "patchCampaign":
		b.Elements = map[string]int{"/layers": min(shape.MaxLayers, settings.Campaigns.MaxPositions)}
	}
	b.Length = min(b.Length, settings.API.BodyLimitBytes)
	return b
}

// announced returns the length of the body that the client announced; less than 0: it did
// not say. The head itself may have been changed before its handler was called.
func announced(c *fiber.Ctx) int {
	if connection, ok := c.Context().Conn().(*httpconn.Conn); ok {
		return connection.Length()
	}
	return c.Request().Header.ContentLength()
}

// Read reads the body of a request, if it is no longer than limit, and calls then with
// it. Only then the body and what is made of it count as memory that is in use: as its owner's,
// a client or an address.
func (b Bodies) Read(ctx context.Context, c *fiber.Ctx, owner string, limit int, then func(body []byte) error) error {
	length := announced(c)
	switch {
	case length > limit:
		return tooLong(limit)
	case length < 0 || length > AtOnce:
		size := int64(limit)
		if length > 0 {
			size = int64(length)
		}
		release, err := b.room.Acquire(ctx, owner, size)
		if err != nil {
			return tooMany(err)
		}
		defer release()
		if connection, ok := c.Context().Conn().(*httpconn.Conn); ok && b.arrive > 0 {
			connection.SetBodyDeadline(time.Now().Add(b.arrive))
		}
	}
	body, err := whole(c.Context().RequestBodyStream(), length, limit)
	if err != nil {
		return err
	}
	c.Request().SetBodyRaw(body)
	if len(body) > smallBody {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.wait) // the body may have taken long to arrive
		defer cancel()
		leave, err := b.turn.Acquire(ctx, fair.Caller{Client: owner})
		if err != nil {
			return tooMany(err)
		}
		defer leave()
	}
	return then(body)
}

func tooMany(err error) error {
	return fault.Wrap(fault.Overloaded, err, "too many large bodies are being received; retry with the same Idempotency-Key")
}

// whole reads a stream to its end. A body that was announced has its room already.
func whole(stream io.Reader, announced, limit int) ([]byte, error) {
	if stream == nil {
		return nil, nil
	}
	var body bytes.Buffer
	body.Grow(max(announced, 0) + bytes.MinRead) // what ReadFrom wants to be free at the end
	_, err := body.ReadFrom(io.LimitReader(stream, int64(limit)+1))
	if body.Len() < announced && err == nil {
		err = io.ErrUnexpectedEOF
	}
	switch {
	case err != nil: // the client is gone, or was too slow and has its answer
		return nil, fault.Wrap(fault.InvalidRequest, err, "the body is shorter than its Content-Length")
	case body.Len() > limit:
		return nil, tooLong(limit)
	}
	return body.Bytes(), nil
}

func tooLong(limit int) error {
	return fault.New(fault.BodyTooLarge, "the body of this request may have at most %d bytes", limit)
}

// CheckMedia refuses a body that is announced to be anything but JSON in UTF-8.
func CheckMedia(c *fiber.Ctx, o *openapi.Operation) error {
	if !o.HasBody || announced(c) == 0 { // ReadJSON says what is missing
		return nil
	}
	for _, encoding := range c.Request().Header.PeekAll(fiber.HeaderContentEncoding) {
		if len(encoding) > 0 && !strings.EqualFold(string(encoding), "identity") {
			return fault.New(fault.UnsupportedMediaType, "send the body without Content-Encoding")
		}
	}
	media, parameters, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || media != fiber.MIMEApplicationJSON || !strings.EqualFold(cmp.Or(parameters["charset"], "utf-8"), "utf-8") {
		return fault.New(fault.UnsupportedMediaType, "send the body as application/json, in UTF-8")
	}
	return nil
}

// ReadJSON checks a JSON body and replaces it by its canonical form, so that the same
// bytes are checked, fingerprinted and read. It returns the canonical form and the
// user that the body names; the form is nil for an operation without a body.
func ReadJSON(c *fiber.Ctx, o *openapi.Operation, body []byte, elements map[string]int) (canonical []byte, actsFor string, err error) {
	switch {
	case !o.HasBody && (len(body) == 0 || string(bytes.Join(bytes.Fields(body), nil)) == "{}"): // many clients send {} for nothing
		return nil, "", nil
	case !o.HasBody:
		return nil, "", fault.New(fault.InvalidRequest, "this operation has no body; {} counts as none")
	case len(body) == 0 && o.BodyOptional:
		c.Request().Header.SetContentType(fiber.MIMEApplicationJSON)
		body = []byte("{}")
	case len(body) == 0:
		empty := fault.New(fault.InvalidRequest, "the body is empty")
		_, _, empty.Fields, _ = o.ReadBody([]byte("{}"), nil) // which is JSON
		return nil, "", empty
	}
	canonical, texts, faults, err := o.ReadBody(body, elements)
	if err != nil {
		return nil, "", fault.Wrap(fault.InvalidRequest, err, "the body is not one JSON value in valid UTF-8")
	}
	if len(faults) > 0 {
		return nil, "", fault.Invalid(faults...)
	}
	c.Request().SetBodyRaw(canonical)
	return canonical, texts["user_id"], nil
}

// DecodeStrictly decodes a body that ReadJSON has checked. A field that its type
// does not have is an error: the contract and the type differ.
func DecodeStrictly(body []byte, target any) error {
	d, _ := decoders.Get().(*decoder)
	d.body.Reset(body)
	begin := d.InputOffset()
	err := d.Decode(target)
	if read := d.InputOffset() - begin; err == nil && read == int64(len(body)) && read <= longestKept {
		decoders.Put(d) // it has seen no error, and nothing of this body is left in it
	}
	return err
}

// decoder is one that is used again. Its buffer is most of what a decoding allocates.
type decoder struct {
	*json.Decoder

	body bytes.Reader
}

var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.Decoder = json.NewDecoder(&d.body)
	d.DisallowUnknownFields()
	return d
}}

// longestKept is the longest body whose buffer is kept.
const longestKept = 4 << 10
