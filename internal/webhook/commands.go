package webhook

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
	"triprize/internal/webhook/sender"
)

// Documents make the bodies of answers.
type Documents struct {
	Endpoint func(Endpoint, []Secret) any
	Delivery func(Delivery) any
	Replayed func(ReplayResult) any
}

// Endpoints carries out commands on endpoints.
type Endpoints struct {
	db        postgres.Beginner
	keys      keyring.Keyring
	guard     sender.Guard
	documents Documents
}

// maxEndpoints bounds the endpoints of a client.
const maxEndpoints = 16

// NewEndpoints returns the commands. keys seal the secrets; guard says where events may be sent,
// and which addresses need no challenge.
func NewEndpoints(db postgres.Beginner, keys keyring.Keyring, guard sender.Guard, documents Documents) *Endpoints {
	return &Endpoints{db: db, keys: keys, guard: guard, documents: documents}
}

// Create makes an endpoint from the fields that a client gives. secret is empty when the key of
// the request was used before: then it was shown already. A URL that nothing may be sent to is an
// invalid-request Error; one endpoint too many is a state-conflict Error.
func (s *Endpoints) Create(ctx context.Context, r job.Request, e Endpoint) (done job.Accepted, secret string, err error) {
	if err := s.check(e.URL); err != nil {
		return job.Accepted{}, "", err
	}
	if s.guard.Named(e.URL) { // it need not echo a challenge
		now := time.Now()
		e.VerifiedAt = &now
	}
	e.ID, secret = uuidv7.New(), sender.NewSecret()
	done, err = job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		made, err := Create(ctx, tx, e, Seal(s.keys, e.ID, secret), maxEndpoints)
		if err != nil {
			return nil, err
		}
		return s.document(ctx, tx, made)
	})
	return shownOnce(done, secret, err)
}

// shownOnce is the outcome of a command that makes a secret: only the first request gets it.
func shownOnce(done job.Accepted, secret string, err error) (job.Accepted, string, error) {
	if err != nil || done.Replayed || done.Reused || done.Job.Problem != nil {
		secret = ""
	}
	return done, secret, err
}

// check returns what is wrong with a URL as an Error.
func (s *Endpoints) check(url string) error {
	if err := s.guard.CheckURL(url); err != nil {
		return fault.Invalid(fault.Field{Pointer: "/url", Detail: err.Error()})
	}
	return nil
}

// Patch changes an endpoint of owner's; an empty owner is an operator, who may change any.
func (s *Endpoints) Patch(ctx context.Context, owner string, id uuid.UUID, c Change) (document any, err error) {
	if c.URL != nil {
		if err := s.check(*c.URL); err != nil {
			return nil, err
		}
		c.Verified = s.guard.Named(*c.URL)
	}
	err = postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		_, known, err := s.lock(ctx, tx, owner, c.Key, id)
		if err != nil {
			return err
		}
		changed, err := patch(ctx, tx, id, c)
		if err != nil {
			return err
		}
		if document, err = s.document(ctx, tx, changed); err != nil {
			return err
		}
		return trail.Write(ctx, tx, known, document)
	})
	return document, err
}

// Delete deletes an endpoint.
func (s *Endpoints) Delete(ctx context.Context, owner string, id uuid.UUID) error {
	return postgres.InTx(ctx, s.db, func(tx pgx.Tx) error {
		_, known, err := s.lock(ctx, tx, owner, "", id)
		if err != nil {
			return err
		}
		if err := remove(ctx, tx, id); err != nil {
			return err
		}
		return trail.Write(ctx, tx, known, nil)
	})
}

// lock locks an endpoint of owner's, and returns it, also as it is answered with. It locks the key that changes it, if
// there is one, before: so does a revocation.
func (s *Endpoints) lock(ctx context.Context, tx pgx.Tx, owner, key string, id uuid.UUID) (e Endpoint, document any, err error) {
	if err = checkKey(ctx, tx, key); err != nil {
		return e, nil, err
	}
	if _, err = tx.Exec(ctx, `SELECT FROM webhook_endpoints WHERE id = $1 FOR NO KEY UPDATE`, id); err != nil {
		return e, nil, fault.At(err, "webhook.lock(%s)", id)
	}
	if e, err = FindEndpoint(ctx, tx, owner, id); err == nil {
		document, err = s.document(ctx, tx, e)
	}
	return e, document, err
}

// Enable has events sent to an endpoint again, or a challenge, for a key (its prefix).
func (s *Endpoints) Enable(ctx context.Context, r job.Request, owner, key string, id uuid.UUID) (job.Accepted, error) {
	return s.change(ctx, r, owner, key, id, func(tx pgx.Tx, _ Endpoint) (Endpoint, error) { return enable(ctx, tx, id, key) })
}

// Disable stops an endpoint. Its pending deliveries fail.
func (s *Endpoints) Disable(ctx context.Context, r job.Request, owner string, id uuid.UUID) (job.Accepted, error) {
	return s.change(ctx, r, owner, "", id, func(tx pgx.Tx, _ Endpoint) (Endpoint, error) { return disable(ctx, tx, id, Asked) })
}

// Rotate gives an endpoint another secret, and returns it to the first request with a key.
// The one before signs too for overlap.
func (s *Endpoints) Rotate(ctx context.Context, r job.Request, owner string, id uuid.UUID, overlap time.Duration) (done job.Accepted, secret string, err error) {
	secret = sender.NewSecret()
	done, err = s.change(ctx, r, owner, "", id, func(tx pgx.Tx, e Endpoint) (Endpoint, error) {
		return e, addSecret(ctx, tx, id, Seal(s.keys, id, secret), overlap)
	})
	return shownOnce(done, secret, err)
}

// once runs a command on an endpoint once.
func (s *Endpoints) once(ctx context.Context, r job.Request, owner string, id uuid.UUID, do func(tx pgx.Tx, e Endpoint) (any, error)) (job.Accepted, error) {
	return job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		e, err := FindEndpoint(ctx, tx, owner, id)
		if err != nil {
			return nil, err
		}
		return do(tx, e)
	})
}

// change is once for commands that change the endpoint, and answer with it. key is as in lock.
func (s *Endpoints) change(ctx context.Context, r job.Request, owner, key string, id uuid.UUID, do func(tx pgx.Tx, e Endpoint) (Endpoint, error)) (job.Accepted, error) {
	return job.Once(ctx, s.db, r, func(tx pgx.Tx) (any, error) {
		e, known, err := s.lock(ctx, tx, owner, key, id)
		if err != nil {
			return nil, err
		}
		changed, err := do(tx, e)
		if err != nil {
			return nil, err
		}
		now, err := s.document(ctx, tx, changed)
		return job.Answer{Body: now, Before: known}, err
	})
}

// document is an endpoint as it is answered with.
func (s *Endpoints) document(ctx context.Context, db postgres.DB, e Endpoint) (any, error) {
	secrets, err := Secrets(ctx, db, e.ID)
	if err != nil {
		return nil, err
	}
	return s.documents.Endpoint(e, secrets), nil
}

// FindEndpoint returns an endpoint that owner may see, or a not-found Error. An empty owner sees
// all.
func FindEndpoint(ctx context.Context, db postgres.DB, owner string, id uuid.UUID) (Endpoint, error) {
	e, err := Get(ctx, db, id)
	if err != nil {
		return Endpoint{}, err
	}
	if owner != "" && e.Client != owner {
		return Endpoint{}, unknown(id)
	}
	return e, nil
}

// maxReplayed is how many events one request sends again at most.
const maxReplayed = 1000

// ReplayResult is what a replay of a span has done.
type ReplayResult struct {
	Count int
	More  bool      // there are more in the span
	Until time.Time // the cursor: where the next request begins
}

// Span is what to send again.
type Span struct {
	From, To time.Time // To itself is not in it
	Filter             // no types: all that the endpoint wants
}

// Test sends a test event to an endpoint. One that is disabled is a state-conflict Error.
func (s *Endpoints) Test(ctx context.Context, r job.Request, owner string, id uuid.UUID) (job.Accepted, error) {
	return s.once(ctx, r, owner, id, func(tx pgx.Tx, e Endpoint) (any, error) {
		event, err := Test(ctx, tx, e)
		if err != nil {
			return nil, err
		}
		return s.delivery(ctx, tx, id, event.ID)
	})
}

// Replay sends one event again, with its id and its body.
func (s *Endpoints) Replay(ctx context.Context, r job.Request, owner string, id, event uuid.UUID) (job.Accepted, error) {
	return s.once(ctx, r, owner, id, func(tx pgx.Tx, e Endpoint) (any, error) {
		if err := Replay(ctx, tx, e, event); err != nil {
			return nil, err
		}
		return s.delivery(ctx, tx, id, event)
	})
}

// ReplaySpan sends events of a span again, the oldest first, [maxReplayed] at most.
func (s *Endpoints) ReplaySpan(ctx context.Context, r job.Request, owner string, id uuid.UUID, span Span) (job.Accepted, error) {
	if !span.From.Before(span.To) {
		return job.Accepted{}, fault.Invalid(fault.Field{Pointer: "/to", Detail: "must be after from"})
	}
	return s.once(ctx, r, owner, id, func(tx pgx.Tx, e Endpoint) (any, error) {
		n, last, err := replaySpan(ctx, tx, e, span, maxReplayed)
		if err != nil {
			return nil, err
		}
		done := ReplayResult{Count: n, Until: span.To}
		if n == maxReplayed && last != nil {
			done.More, done.Until = true, *last // events of one moment may be sent twice, and none is left out
		}
		return s.documents.Replayed(done), nil
	})
}

func (s *Endpoints) delivery(ctx context.Context, tx pgx.Tx, endpoint, event uuid.UUID) (any, error) {
	d, _, err := GetDelivery(ctx, tx, endpoint, event, 1)
	if err != nil {
		return nil, err
	}
	return s.documents.Delivery(d), nil
}
