package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/console"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/openapi"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// actorOf returns the operator who changes something by a request, or nil. In the console the name is the session's.
func (s *server) actorOf(c *fiber.Ctx, o *openapi.Operation, who call.Caller) (a *trail.Actor, err error) {
	if who.Role != resource.Operator && !who.Approves && o.ID != "eraseUser" || o.Method == http.MethodGet {
		return nil, nil
	}
	a = &trail.Actor{Client: who.App, KeyPrefix: who.KeyPrefix, Address: s.addressOf(c), Via: "api", Operation: o.ID}
	if a.Reason, err = statedIn(c, "Triprize-Reason", 500); err != nil {
		return nil, err
	}
	if session := console.SessionOf(c); session.Client != "" {
		a.Via, a.Operator, a.Issuer, a.Subject, a.Email = "console", session.Operator, session.Issuer, session.Subject, session.Email
	} else if a.Operator, err = statedIn(c, "Triprize-Operator", 100); err != nil {
		return nil, err
	}
	if _, path, ok := strings.Cut(o.Path, "{"); ok && o.ID != "eraseUser" { // of a campaign and its draw, the campaign
		name, _, _ := strings.Cut(path, "}")
		text, _ := parametersOf(c)("path", name)
		a.Target = strings.ToLower(text)
	}
	return a, nil
}

// statedIn reads a header of percent-encoded text.
func statedIn(c *fiber.Ctx, header string, most int) (string, error) {
	text, err := url.PathUnescape(c.Get(header))
	if err != nil || !utf8.ValidString(text) || utf8.RuneCountInString(text) > most || strings.ContainsFunc(text, unicode.IsControl) {
		return "", fault.Invalid(fault.Field{Pointer: header, Detail: fmt.Sprintf("must be percent-encoded UTF-8 of at most %d characters, none of them a control character", most)})
	}
	return strings.TrimSpace(text), nil
}

func (s *server) ListAuditTrail(ctx context.Context, r operations.ListAuditTrailRequestObject) (operations.Answer, error) {
	page, err := response.ListPage(r.Params.Cursor, r.Params.Limit)
	if err != nil {
		return nil, err
	}
	list, next, err := trail.List(ctx, s.db, trail.Filter{Target: strings.ToLower(response.ValueOf(r.Params.Target)), Key: response.ValueOf(r.Params.Key),
		Operator: response.ValueOf(r.Params.Operator), Operation: response.ValueOf(r.Params.Operation), Since: response.ValueOf(r.Params.Since), Until: response.ValueOf(r.Params.Until)}, page)
	return operations.ListAuditTrail200(contract.AuditTrailPage{AuditTrail: response.Documents(list, trailEntry), NextCursor: response.ListCursor(next)}, err)
}

func trailEntry(e trail.Entry) contract.AuditTrailEntry {
	var approver *contract.ApprovalActor
	_ = json.Unmarshal([]byte(e.ApprovedBy), &approver) // of an empty one there is none
	return contract.AuditTrailEntry{ApprovalID: e.ApprovalID, ApprovedBy: approver, ID: e.ID, At: e.At, Operator: postgres.Nullable(e.Operator), Verified: e.Issuer != "", Issuer: postgres.Nullable(e.Issuer), Subject: postgres.Nullable(e.Subject),
		Email: postgres.Nullable(e.Email), Client: e.Client, KeyPrefix: postgres.Nullable(e.KeyPrefix),
		Address: postgres.Nullable(e.Address), Via: contract.AuditTrailEntryVia(e.Via), Operation: e.Operation, Target: e.Target, JobID: e.JobID,
		Reason: postgres.Nullable(e.Reason), Before: members(e.Before), After: members(e.After), Seal: e.Seal}
}

func members(object string) (all *map[string]any) {
	numbers := json.NewDecoder(strings.NewReader(object))
	numbers.UseNumber()
	_ = numbers.Decode(&all) // of nothing there are none
	return all
}
