package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gofiber/fiber/v2"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/person"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/personal"
	"triprize/internal/platform/token"
	"triprize/internal/trail"
)

// personOf returns whom a request is about: an app's own user, or that of the client that an operator names at the pointer.
func (s *server) personOf(ctx context.Context, who call.Caller, user, client, pointer string) (person.Person, error) {
	switch {
	case who.Role == resource.App && client != "":
		return person.Person{}, fault.New(fault.Forbidden, "an app names no client; omit client")
	case who.Role == resource.App:
		return person.Person{Client: who.App, UserID: user}, nil
	case client == "":
		return person.Person{}, fault.Invalid(fault.Field{Pointer: pointer, Detail: "is required: the client whose user it is, or " + person.All})
	case client == person.All:
		return person.Person{UserID: user}, nil
	case strings.HasPrefix(client, token.ClientPrefix):
		return person.Person{Client: client, UserID: user}, nil
	}
	known, err := key.IsClient(ctx, s.db, client)
	if err == nil && !known {
		err = fault.New(fault.NotFound, "there is no client %q", client)
	}
	return person.Person{Client: client, UserID: user}, err
}

func (s *server) GetUserData(ctx context.Context, r operations.GetUserDataRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	whose, err := s.personOf(ctx, who.Caller, r.User, response.ValueOf(r.Params.Client), "?client")
	if err != nil {
		return nil, err
	}
	release, err := s.exports.enter(who.Caller, exportsOfClient)
	if err != nil {
		return nil, err
	}
	ended := func(outcome string, err error) {
		if outcome == "failed" {
			s.logger.Warn("a copy of a user's data was cut off", "error", err)
		}
		s.exports.ended.WithLabelValues(outcome).Inc()
	}
	return sendFunc(func(c *fiber.Ctx) error { //nolint:contextcheck // it is sent after the request
		c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
		c.Set(fiber.HeaderContentDisposition, `attachment; filename="user.json"`)
		c.Set(fiber.HeaderCacheControl, notStored)
		return response.Pipe{Sending: s.sending, Timeout: longestExport, Release: release, Ended: ended, Until: who.UntilRevoked,
			Write: func(ctx context.Context, w io.Writer) error { return upkeep.Personal().Copy(ctx, s.db, whose, w) }}.Send(c)
	}), nil
}

// EraseUser accepts the erasure of a user as a job, unless something is open. The job looks again.
func (s *server) EraseUser(ctx context.Context, r operations.EraseUserRequestObject) (operations.Answer, error) {
	who := call.Of(ctx)
	// The job forgets its user, and a key may have its id: the stored key and hash lead back to neither, and find the job all the same.
	hasher := keyring.NewHasher(s.settings.Draw.SecretKey, "")
	who.Key, who.Fingerprint = fmt.Sprintf("hmac:%x", hasher.Of(who.Key)), [sha256.Size]byte(hasher.Of(string(who.Fingerprint[:])))
	whose, err := s.personOf(ctx, who.Caller, r.User, r.Body.Client, "/client")
	if err != nil {
		return nil, err
	}
	if personal.IsPseudonym(r.User) {
		return nil, fault.New(fault.StateConflict, "this is the pseudonym of a user who was erased")
	}
	reason := strings.TrimSpace(r.Body.Reason)
	if reason == "" {
		return nil, fault.Invalid(fault.Field{Pointer: "/reason", Detail: "must state the reason, for the records"})
	}
	if actor := trail.Of(ctx); actor != nil {
		actor.Reason = cmp.Or(actor.Reason, reason)
	}
	payload, err := json.Marshal(person.Order{Person: whose, By: who.Signature(), Reason: reason})
	if err != nil {
		return nil, err
	}
	request := job.Request{Kind: job.KindErasure, UserID: r.User, Owner: cmp.Or(whose.Client, job.EveryClient), Payload: payload, Retention: s.settings.Retention.Jobs}
	if _, known, err := job.OfKey(ctx, s.db, job.Request{Client: who.App, Key: who.Key, Hash: who.Fingerprint}); err != nil {
		return nil, err
	} else if !known {
		if err := person.CheckQueued(ctx, s.db, who.App); err != nil {
			return nil, err
		}
		if err := upkeep.Personal().Open(ctx, s.db, whose); err != nil {
			return nil, err
		}
	}
	return s.accept(ctx, request)
}
