// Package response has what the answers to several operations share.
//
// That is entity tags, the results of commands and jobs, pages of lists, event streams, and
// bodies that are sent as slowly as they are read.
package response

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
)

// defaultPage is the size of a page when the client does not say.
const defaultPage = 50

// PageSize is the size of a page: as the client says, or defaultPage.
func PageSize(limit *int) int { return cmp.Or(ValueOf(limit), defaultPage) }

// Cut cuts a list, read with one element more than limit, into a page and the cursor of the next one; nil: it is
// the last page.
func Cut[T any](list []T, limit int, id func(last T) uuid.UUID) (page []T, next *uuid.UUID) {
	if len(list) <= limit {
		return list, nil
	}
	return list[:limit], new(id(list[limit-1]))
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
	return new(base64.RawURLEncoding.EncodeToString(next[:]))
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
	sum := sha256.Sum256(body)
	return Tagged{Tag: `W/"` + hex.EncodeToString(sum[:12]) + `"`, Body: body}, nil
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

// Prefer is how a client wants to wait for a job (Prefer: wait=10).
type Prefer struct {
	Longest    time.Duration // 0: it does not wait
	UntilFinal bool          // until=final: an action that the buyer owes is no reason to answer
}

// PreferOf returns the wait that a Prefer header asks for, as long as longest at most:
// wait=N, and perhaps the parameter until=final (RFC 7240).
func PreferOf(prefer string, longest time.Duration) (w Prefer) {
	for preference := range strings.SplitSeq(prefer, ",") {
		first, parameters, _ := strings.Cut(preference, ";")
		name, value := nameAndValue(first)
		if name != "wait" {
			continue
		}
		seconds, err := strconv.Atoi(value)
		if err != nil || seconds <= 0 {
			continue
		}
		w.Longest = min(time.Duration(min(seconds, 1<<20))*time.Second, longest)
		for parameter := range strings.SplitSeq(parameters, ";") {
			name, value := nameAndValue(parameter)
			w.UntilFinal = w.UntilFinal || name == "until" && strings.EqualFold(value, "final")
		}
		return w
	}
	return Prefer{}
}

// nameAndValue reads name=value, the name in small letters and the value without quotes.
func nameAndValue(text string) (name, value string) {
	name, value, _ = strings.Cut(text, "=")
	return strings.ToLower(strings.TrimSpace(name)), strings.Trim(strings.TrimSpace(value), `"`)
}

// String is the wait as Preference-Applied says it.
func (w Prefer) String() string {
	text := "wait=" + strconv.Itoa(int(w.Longest.Seconds()))
	if w.UntilFinal {
		text += "; until=final"
	}
	return text
}

// Enough reports whether a job has come as far as the client waits for.
func (w Prefer) Enough(j job.Job) bool {
	return j.State.Final() || j.State == job.AwaitingAction && !w.UntilFinal
}

// FinalStatus is the status of a POST whose job is final: 200 for a client that
// preferred to wait, always 202 for others.
func (w Prefer) FinalStatus() int {
	if w.Longest > 0 {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// Accepted returns the media type that a client likes best, of those that an answer can have
// (RFC 9110, section 12.5.1): the first one, unless it asks for another. Media types are compared
// without case, and without parameters but q.
func Accepted(c *fiber.Ctx, offers ...string) string {
	header := string(bytes.Join(c.Request().Header.PeekAll(fiber.HeaderAccept), []byte(",")))
	best, most := offers[0], [3]float64{}
	for _, offer := range offers {
		if w := weightOf(header, offer); w[0] > 0 && slices.Compare(w[:], most[:]) > 0 {
			best, most = offer, w
		}
	}
	return best
}

// weightOf returns the weight that a header gives to a media type, by that of its most exact range: the
// quality, how exact it is (3: the type; 2: type/*; 1: */*), and minus its place in the header.
func weightOf(header, media string) (found [3]float64) {
	family, _, _ := strings.Cut(media, "/")
	at := 0.0
	for text := range strings.SplitSeq(header, ",") {
		at++
		name, parameters, _ := strings.Cut(text, ";")
		w := [3]float64{1, 0, -at}
		switch name = strings.TrimSpace(name); {
		case strings.EqualFold(name, media):
			w[1] = 3
		case strings.EqualFold(name, family+"/*"):
			w[1] = 2
		case name == "*/*":
			w[1] = 1
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			if key, value, _ := strings.Cut(parameter, "="); strings.EqualFold(strings.TrimSpace(key), "q") {
				if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 && q <= 1 {
					w[0] = q
				}
			}
		}
		if w[1] > found[1] || w[1] > 0 && w[1] == found[1] && w[0] > found[0] {
			found = w
		}
	}
	return found
}
