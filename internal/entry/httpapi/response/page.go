package response

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/postgres"
)

// defaultPage is the size of a page when the client does not say.
const defaultPage = 50

// PageSize is the size of a page: as the client says, or defaultPage.
func PageSize(limit *int) int {
	if limit == nil {
		return defaultPage
	}
	return *limit
}

// NextCursor returns the cursor of the page after a list, or nil when the list is not full.
func NextCursor[T any](list []T, limit int, id func(last T) uuid.UUID) *uuid.UUID {
	if n := len(list); n > 0 && n >= limit {
		return new(id(list[n-1]))
	}
	return nil
}

// Documents returns the documents of rows.
func Documents[T, D any](rows []T, document func(T) D) []D {
	documents := make([]D, len(rows))
	for i, row := range rows {
		documents[i] = document(row)
	}
	return documents
}

// ListPage reads cursor and limit of a list. The contract has checked the form of both.
func ListPage(cursor *contract.ListCursor, limit *int) (p postgres.ListPage, err error) {
	p.Limit = PageSize(limit)
	if cursor == nil {
		return p, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err == nil {
		p.Before, err = uuid.FromBytes(raw)
	}
	if err != nil {
		return p, fault.Invalid(fault.Field{Pointer: "?cursor", Detail: "must be the next_cursor of an earlier page"})
	}
	return p, nil
}

// ListCursor writes where the next page begins; nil after the last one.
func ListCursor(next uuid.UUID) *contract.NextCursor {
	if next == uuid.Nil {
		return nil
	}
	text := base64.RawURLEncoding.EncodeToString(next[:])
	return &text
}

// ValueOf returns what a parameter says; of one that was not sent, the zero value.
func ValueOf[T any](parameter *T) (value T) {
	if parameter != nil {
		value = *parameter
	}
	return value
}

// Tagged is an answer with an entity tag, for If-None-Match.
type Tagged struct {
	Tag       string
	Body      []byte
	Unchanged bool // the client has it already

	KeepForever bool // it never changes, and is for everybody
}

// Forever lets everybody keep an answer that never changes.
const Forever = "public, max-age=31536000, immutable"

// Tag encodes a document. Its tag is weak: it stands for the content, with
// any compression that a proxy adds.
func Tag(document any) (Tagged, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return Tagged{}, err
	}
	return Tagged{Tag: `W/"` + digest(body) + `"`, Body: body}, nil
}

// TagAt encodes a document as of a board_version. Its tag begins with the version: the
// same version can be shown in several ways, as holds end by the clock.
func TagAt(version int64, document any) (Tagged, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return Tagged{}, err
	}
	return Tagged{Tag: TagOf(version, sha256.Sum256(body)), Body: body}, nil
}

// TagOf returns the tag of something of a board_version: it is made of the version and of
// a digest that stands for the content.
func TagOf(version int64, digest [sha256.Size]byte) string {
	return `W/"` + strconv.FormatInt(version, 10) + "-" + hex.EncodeToString(digest[:12]) + `"`
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:12])
}

// StrongTag is an entity tag without the W/ that a proxy writes before it when it compresses.
func StrongTag(tag string) string { return strings.TrimPrefix(tag, "W/") }

// Matched returns the answer for a client that sends If-None-Match (RFC 9110, section 13.1.2).
func (a Tagged) Matched(ifNoneMatch *string) Tagged {
	a.Unchanged = false
	if ifNoneMatch == nil {
		return a
	}
	opaque := StrongTag(a.Tag)
	for known := range strings.SplitSeq(*ifNoneMatch, ",") {
		known = strings.TrimSpace(known)
		a.Unchanged = a.Unchanged || known == "*" || StrongTag(known) == opaque
	}
	return a
}

// Send implements operations.Answer.
func (a Tagged) Send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderETag, a.Tag)
	c.Set(fiber.HeaderCacheControl, "private, no-cache")
	if a.KeepForever {
		c.Set(fiber.HeaderCacheControl, Forever)
	}
	if a.Unchanged {
		return c.SendStatus(http.StatusNotModified)
	}
	return SendJSON(c, http.StatusOK, false, a.Body)
}
