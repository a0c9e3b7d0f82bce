package outbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Accept makes jobs from requests and their messages: see [job.Accept]. The caller dispatches the
// messages once their jobs are committed.
func Accept(ctx context.Context, db postgres.DB, requests []job.Request) ([]job.Done, []Message, error) {
	done, made, err := job.Accept(ctx, db, requests)
	return done, messagesOf(made), fault.At(err, "outbox.Accept")
}

// Insert makes one job of [job.System] with its message in the caller's
// transaction: see [job.Insert]. The caller dispatches the message after the commit.
func Insert(ctx context.Context, tx pgx.Tx, r job.Request) ([]Message, error) {
	made, err := job.Insert(ctx, tx, r)
	messages := messagesOf(made)
	for i := range messages {
		messages[i].By, messages[i].From = r.By, r.Origin
	}
	return messages, fault.At(err, "outbox.Insert")
}

func messagesOf(made []job.Bundle) []Message {
	messages := make([]Message, len(made))
	for i, b := range made {
		messages[i] = Message{ID: b.ID, Kind: b.Kind, Delivery: 1, Jobs: b.Jobs}
	}
	return messages
}
