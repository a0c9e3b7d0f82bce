package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// taggedAnswer is an answer with an entity tag, for If-None-Match.
type taggedAnswer struct {
	tag       string
	body      []byte
	unchanged bool // the client has it already
}

// tagged encodes a document. Its tag is weak: it stands for the content, whatever
// compression a proxy adds.
func tagged(document any, ifNoneMatch *string) (taggedAnswer, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return taggedAnswer{}, err
	}
	return taggedAnswer{tag: `W/"` + digest(body) + `"`, body: body}.matched(ifNoneMatch), nil
}

// taggedAt encodes a document as of a board_version. Its tag begins with the version: the
// same version can be shown in several ways, as holds end by the clock.
func taggedAt(version int64, document any) (taggedAnswer, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return taggedAnswer{}, err
	}
	return taggedAnswer{tag: `W/"` + strconv.FormatInt(version, 10) + "-" + digest(body) + `"`, body: body}, nil
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:12])
}

// matched returns the answer for a client that sends If-None-Match (RFC 9110, section 13.1.2).
func (a taggedAnswer) matched(ifNoneMatch *string) taggedAnswer {
	a.unchanged = false
	if ifNoneMatch == nil {
		return a
	}
	opaque := strings.TrimPrefix(a.tag, "W/")
	for known := range strings.SplitSeq(*ifNoneMatch, ",") {
		known = strings.TrimSpace(known)
		a.unchanged = a.unchanged || known == "*" || strings.TrimPrefix(known, "W/") == opaque
	}
	return a
}

func (a taggedAnswer) send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderETag, a.tag)
	c.Set(fiber.HeaderCacheControl, "private, no-cache")
	if a.unchanged {
		return c.SendStatus(http.StatusNotModified)
	}
	return sendJSON(c, http.StatusOK, false, a.body)
}

// VisitGetCampaignResponse implements contract.GetCampaignResponseObject.
func (a taggedAnswer) VisitGetCampaignResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitListCampaignsResponse implements contract.ListCampaignsResponseObject.
func (a taggedAnswer) VisitListCampaignsResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitGetPositionResponse implements contract.GetPositionResponseObject.
func (a taggedAnswer) VisitGetPositionResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitListPositionsResponse implements contract.ListPositionsResponseObject.
func (a taggedAnswer) VisitListPositionsResponse(c *fiber.Ctx) error { return a.send(c) }
