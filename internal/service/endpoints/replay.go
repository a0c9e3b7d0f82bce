package endpoints

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/job"
	"triprize/internal/store/webhook"
)

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
