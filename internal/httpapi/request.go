package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/gowebpki/jcs"

	"triprize/internal/fault"
)

// pathID returns a path parameter that must be a UUID; anything else names nothing.
func pathID(c *fiber.Ctx, name string) (uuid.UUID, error) {
	text := c.Params(name)
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, fault.New(fault.NotFound, "there is no %s with this id", name)
	}
	return id, nil
}

// decodeBody reads a JSON body into target. Unknown fields, wrong types and
// anything after the value are refused. It returns the body in canonical form
// (RFC 8785), which also refuses repeated keys and bad UTF-8.
func decodeBody(c *fiber.Ctx, target any) (canonical []byte, err error) {
	media, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || media != "application/json" {
		return nil, fault.New(fault.UnsupportedMediaType, "send the body as application/json")
	}
	canonical, err = jcs.Transform(c.Body())
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, err, "the body is not one valid JSON value")
	}
	decoder := json.NewDecoder(bytes.NewReader(canonical)) // what is fingerprinted is what is read
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(target); err != nil {
		return nil, badJSON(err)
	}
	return canonical, nil
}

// badJSON says which field a JSON value does not fit.
func badJSON(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		pointer := "/" + strings.ReplaceAll(wrong.Field, ".", "/")
		return fault.Invalid(fault.Field{Pointer: pointer, Detail: "must not be a JSON " + wrong.Value})
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, io.EOF) {
		return fault.New(fault.InvalidRequest, "the body is empty")
	}
	return fault.New(fault.InvalidRequest, "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// maxKey is the longest idempotency key, in characters.
const maxKey = 255

// idempotencyKey returns the key of a request, bare or as a quoted structured-field string.
func idempotencyKey(c *fiber.Ctx) (string, error) {
	key := c.Get("Idempotency-Key")
	if key == "" {
		return "", fault.New(fault.KeyMissing, "send an Idempotency-Key header, for example a fresh UUID, and the same one when you retry")
	}
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : n-1])
	}
	if len(key) < 1 || len(key) > maxKey || strings.IndexFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
		return "", fault.New(fault.KeyInvalid, "an Idempotency-Key has 1 to %d printable ASCII characters", maxKey)
	}
	return key, nil
}

// fingerprint tells requests apart that use the same key: method, path, canonical body.
func fingerprint(c *fiber.Ctx, canonical []byte) [sha256.Size]byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(c.Method()), []byte(c.Path()), canonical} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// preferredWait returns how long the client would wait (Prefer: wait=N), at most longest.
func preferredWait(c *fiber.Ctx, longest time.Duration) time.Duration {
	for preference := range strings.SplitSeq(c.Get("Prefer"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(preference), "=")
		if !strings.EqualFold(strings.TrimSpace(name), "wait") {
			continue
		}
		seconds, err := strconv.Atoi(strings.Trim(strings.TrimSpace(value), `"`))
		if err == nil && seconds > 0 {
			return min(time.Duration(min(seconds, 1<<20))*time.Second, longest)
		}
	}
	return 0
}

// text checks a string from outside: its length in characters, and that it has
// nothing in it that a person cannot see.
func text(pointer, value string, shortest, longest int) []fault.Field {
	n := utf8.RuneCountInString(value)
	if n < shortest || n > longest {
		return []fault.Field{{Pointer: pointer, Detail: fmt.Sprintf("must have %d to %d characters", shortest, longest)}}
	}
	if strings.ContainsFunc(value, unicode.IsControl) {
		return []fault.Field{{Pointer: pointer, Detail: "must not contain control characters"}}
	}
	return nil
}

// pageLimits of a list.
const (
	defaultPage = 50
	maxPage     = 200
)

// page reads cursor and limit of a list.
func page(c *fiber.Ctx) (after uuid.UUID, limit int, err error) {
	limit = defaultPage
	if value := c.Query("limit"); value != "" {
		limit, err = strconv.Atoi(value)
		if err != nil || limit < 1 || limit > maxPage {
			return after, 0, fault.Invalid(fault.Field{Pointer: "?limit", Detail: fmt.Sprintf("must be 1 to %d", maxPage)})
		}
	}
	if value := c.Query("cursor"); value != "" {
		after, err = uuid.Parse(value)
		if err != nil {
			return after, 0, fault.Invalid(fault.Field{Pointer: "?cursor", Detail: "must be the next_cursor of an earlier answer"})
		}
	}
	return after, limit, nil
}

// nextCursor returns the cursor of the page after one of n elements, or nil for the last.
func nextCursor(n, limit int, last func() uuid.UUID) *uuid.UUID {
	if n < limit || n == 0 {
		return nil
	}
	id := last()
	return &id
}
