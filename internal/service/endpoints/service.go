package endpoints

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/store/job"
	"triprize/internal/store/webhook"
)

// Documents make the bodies of answers.
type Documents struct {
	Endpoint func(webhook.Endpoint, []webhook.Secret) any
	Delivery func(webhook.Delivery) any
	Replayed func(Replayed) any
}

// Service carries out commands on endpoints.
type Service struct {
	db        postgres.Beginner
	seal      func(endpoint uuid.UUID, secret string) []byte
	most      int // endpoints of a client
	guard     webhookhttp.Guard
	documents Documents
}

// Most is how many endpoints a client has at most.
const Most = 16

// New returns a Service. Secrets are stored as seal makes them; a client has most endpoints at
// most; guard says where events may be sent, and which addresses need no challenge.
func New(db postgres.Beginner, seal func(endpoint uuid.UUID, secret string) []byte, most int, guard webhookhttp.Guard, documents Documents) *Service {
	return &Service{db: db, seal: seal, most: most, guard: guard, documents: documents}
}

// Draft is an endpoint to be made.
type Draft struct {
	Client      string
	Key         string // the prefix of the key that asks; empty: it has none
	URL         string
	Events      []string
	Description *string
}

// Create makes an endpoint. secret is empty when the key of the request was used before: then
// it was shown already. A URL that nothing may be sent to is an invalid-request Error; one
// endpoint too many is a state-conflict Error.
func (s *Service) Create(ctx context.Context, r job.Request, d Draft) (done job.Accepted, secret string, err error) {
	if err := s.check(d.URL); err != nil {
		return job.Accepted{}, "", err
	}
	id, secret := uuidv7.New(), webhookhttp.NewSecret()
	done, err = job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		made, err := webhook.Create(ctx, tx, webhook.Endpoint{ID: id, Client: d.Client, URL: d.URL, Events: d.Events, Description: d.Description,
			MadeBy: d.Key, VerifiedAt: s.verified(d.URL)}, s.seal(id, secret), s.most)
		if err != nil {
			return nil, err
		}
		return s.document(ctx, tx, made)
	})
	return shown(done, secret, err)
}

// verified is since when a URL need not echo a challenge; nil: it has to.
func (s *Service) verified(url string) *time.Time {
	if !s.guard.Named(url) {
		return nil
	}
	now := time.Now()
	return &now
}

// shown is the outcome of a command that makes a secret: only the first request is told it.
func shown(done job.Accepted, secret string, err error) (job.Accepted, string, error) {
	if err != nil || done.Replayed || done.Reused || done.Job.Problem != nil {
		secret = ""
	}
	return done, secret, err
}

// check returns what is wrong with a URL as an Error.
func (s *Service) check(url string) error {
	if err := s.guard.CheckURL(url); err != nil {
		return fault.Invalid(fault.Field{Pointer: "/url", Detail: err.Error()})
	}
	return nil
}

// Patch changes an endpoint of owner's; an empty owner is an operator, who may change any.
func (s *Service) Patch(ctx context.Context, owner string, id uuid.UUID, c webhook.Change) (document any, err error) {
	if c.URL != nil {
		if err := s.check(*c.URL); err != nil {
			return nil, err
		}
		c.Verified = s.guard.Named(*c.URL)
	}
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := Find(ctx, tx, owner, id); err != nil {
			return err
		}
		changed, err := webhook.Patch(ctx, tx, id, c)
		if err != nil {
			return err
		}
		document, err = s.document(ctx, tx, changed)
		return err
	})
	return document, err
}

// Delete deletes an endpoint.
func (s *Service) Delete(ctx context.Context, owner string, id uuid.UUID) error {
	return postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := Find(ctx, tx, owner, id); err != nil {
			return err
		}
		return webhook.Delete(ctx, tx, id)
	})
}

// Enable has events sent to an endpoint again, or a challenge, for a key (its prefix).
func (s *Service) Enable(ctx context.Context, r job.Request, owner, key string, id uuid.UUID) (job.Accepted, error) {
	return s.once(ctx, r, owner, id, func(tx pgx.Tx, _ webhook.Endpoint) (any, error) {
		e, err := webhook.Enable(ctx, tx, id, key)
		if err != nil {
			return nil, err
		}
		return s.document(ctx, tx, e)
	})
}

// Disable stops an endpoint. Its pending deliveries fail.
func (s *Service) Disable(ctx context.Context, r job.Request, owner string, id uuid.UUID) (job.Accepted, error) {
	return s.once(ctx, r, owner, id, func(tx pgx.Tx, _ webhook.Endpoint) (any, error) {
		e, err := webhook.Disable(ctx, tx, id, webhook.Asked)
		if err != nil {
			return nil, err
		}
		return s.document(ctx, tx, e)
	})
}

// Rotate gives an endpoint another secret, and returns it to the first request with a key.
// The one before signs too for overlap.
func (s *Service) Rotate(ctx context.Context, r job.Request, owner string, id uuid.UUID, overlap time.Duration) (done job.Accepted, secret string, err error) {
	secret = webhookhttp.NewSecret()
	done, err = s.once(ctx, r, owner, id, func(tx pgx.Tx, e webhook.Endpoint) (any, error) {
		if err := webhook.AddSecret(ctx, tx, id, s.seal(id, secret), overlap); err != nil {
			return nil, err
		}
		return s.document(ctx, tx, e)
	})
	return shown(done, secret, err)
}

// once runs a command on an endpoint once.
func (s *Service) once(ctx context.Context, r job.Request, owner string, id uuid.UUID, do func(tx pgx.Tx, e webhook.Endpoint) (any, error)) (job.Accepted, error) {
	return job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		e, err := Find(ctx, tx, owner, id)
		if err != nil {
			return nil, err
		}
		return do(tx, e)
	})
}

// document is an endpoint as it is answered with.
func (s *Service) document(ctx context.Context, db postgres.DB, e webhook.Endpoint) (any, error) {
	secrets, err := webhook.Secrets(ctx, db, e.ID)
	if err != nil {
		return nil, err
	}
	return s.documents.Endpoint(e, secrets), nil
}

// Find returns an endpoint that owner may see, or a not-found Error. An empty owner sees
// all.
func Find(ctx context.Context, db postgres.DB, owner string, id uuid.UUID) (webhook.Endpoint, error) {
	e, err := webhook.Get(ctx, db, id)
	if err != nil {
		return webhook.Endpoint{}, err
	}
	if owner != "" && e.Client != owner {
		return webhook.Endpoint{}, fault.New(fault.NotFound, "there is no webhook endpoint %s", id)
	}
	return e, nil
}

// MostReplayed is how many events one request sends again at most.
const MostReplayed = 1000

// Replayed is what a replay of a span has done.
type Replayed struct {
	Count int
	More  bool      // there are more in the span
	Until time.Time // events before were looked at: where the next request begins
}

// Span is what to send again.
type Span struct {
	From, To time.Time // To itself is not in it
	Types    []string  // empty: all that the endpoint wants
	State    webhook.State
}

// Test sends a test event to an endpoint. One that is disabled is a state-conflict Error.
func (s *Service) Test(ctx context.Context, r job.Request, owner string, id uuid.UUID) (job.Accepted, error) {
	return s.sending(ctx, r, owner, id, func(tx pgx.Tx, e webhook.Endpoint) (any, error) {
		event, err := webhook.Test(ctx, tx, e)
		if err != nil {
			return nil, err
		}
		return s.delivery(ctx, tx, id, event.ID)
	})
}

// Replay sends one event again, with its id and its body.
func (s *Service) Replay(ctx context.Context, r job.Request, owner string, id, event uuid.UUID) (job.Accepted, error) {
	return s.sending(ctx, r, owner, id, func(tx pgx.Tx, e webhook.Endpoint) (any, error) {
		if err := webhook.Replay(ctx, tx, e, event); err != nil {
			return nil, err
		}
		return s.delivery(ctx, tx, id, event)
	})
}

// ReplaySpan sends events of a span again, the oldest first, [MostReplayed] at most.
func (s *Service) ReplaySpan(ctx context.Context, r job.Request, owner string, id uuid.UUID, span Span) (job.Accepted, error) {
	if !span.From.Before(span.To) {
		return job.Accepted{}, fault.Invalid(fault.Field{Pointer: "/to", Detail: "must be after from"})
	}
	return s.sending(ctx, r, owner, id, func(tx pgx.Tx, e webhook.Endpoint) (any, error) {
		n, last, err := webhook.ReplaySpan(ctx, tx, e, span.From, span.To, webhook.Filter{State: span.State, Types: span.Types}, MostReplayed)
		if err != nil {
			return nil, err
		}
		done := Replayed{Count: n, Until: span.To}
		if n == MostReplayed && last != nil {
			done.More, done.Until = true, *last // events of one moment may be sent twice, and none is left out
		}
		return s.documents.Replayed(done), nil
	})
}

// sending is once for commands that send something: a disabled endpoint gets nothing.
func (s *Service) sending(ctx context.Context, r job.Request, owner string, id uuid.UUID, do func(tx pgx.Tx, e webhook.Endpoint) (any, error)) (job.Accepted, error) {
	return s.once(ctx, r, owner, id, func(tx pgx.Tx, e webhook.Endpoint) (any, error) {
		if e.DisabledAt != nil {
			return nil, fault.New(fault.StateConflict, "the endpoint is disabled: enable it first")
		}
		return do(tx, e)
	})
}

func (s *Service) delivery(ctx context.Context, tx pgx.Tx, endpoint, event uuid.UUID) (any, error) {
	d, _, err := webhook.GetDelivery(ctx, tx, endpoint, event, 1)
	if err != nil {
		return nil, err
	}
	return s.documents.Delivery(d), nil
}
