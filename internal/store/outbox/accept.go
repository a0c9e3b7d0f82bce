package outbox

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/job"
)

// Accept makes jobs from requests and, in the same commit, one message for each
// kind. A request whose key is known gets the job of that key. On a pool this is a
// transaction of its own, in one round trip, and one more when keys are known.
//
// The caller dispatches the messages once their jobs are committed.
func Accept(ctx context.Context, db postgres.DB, requests []job.Request) ([]job.Accepted, []Message, error) {
	intake := job.NewIntake(requests)
	messages, err := insert(ctx, db, intake)
	if err != nil {
		return nil, nil, fmt.Errorf("outbox.Accept: %w", err)
	}
	accepted, err := intake.Accepted(ctx, db)
	if err != nil {
		return nil, nil, fmt.Errorf("outbox.Accept: %w", err)
	}
	return accepted, messages, nil
}

// Insert makes one job of [job.System] with its message in the caller's
// transaction. The caller dispatches the message after the commit. When there is a
// job with the same key already, nothing changes and there is no message.
func Insert(ctx context.Context, tx pgx.Tx, r job.Request) ([]Message, error) {
	messages, err := insert(ctx, tx, job.NewIntake([]job.Request{r}))
	for i := range messages {
		messages[i].By, messages[i].From = r.By, r.Origin
	}
	return messages, fault.At(err, "outbox.Insert")
}

// insert writes jobs and messages in one batch, which is one transaction when db is
// a pool. It returns the messages that have jobs.
func insert(ctx context.Context, db postgres.DB, intake *job.Intake) ([]Message, error) {
	messages := make(map[job.Kind]*Message)
	var order []job.Kind
	for _, r := range intake.Candidates() {
		if messages[r.Kind] == nil {
			messages[r.Kind] = &Message{ID: uuidv7.New(), Kind: r.Kind, Delivery: 1}
			order = append(order, r.Kind)
		}
	}
	var b pgx.Batch
	queueInsert(&b, intake, messages)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return nil, err
	}
	for _, r := range intake.Candidates() {
		if intake.Made(r) {
			m := messages[r.Kind]
			m.Jobs = append(m.Jobs, r.Ref())
		}
	}
	var made []Message
	for _, kind := range order {
		if len(messages[kind].Jobs) > 0 {
			made = append(made, *messages[kind])
		}
	}
	return made, nil
}

// queueInsert makes the jobs, and a message of each kind for those that it makes. It is one
// statement: requests that are accepted a second time, after an error, may have made their
// jobs and a message before.
func queueInsert(b *pgx.Batch, intake *job.Intake, messages map[job.Kind]*Message) {
	var ids []uuid.UUID
	var kinds []string
	for kind, m := range messages {
		ids, kinds = append(ids, m.ID), append(kinds, string(kind))
	}
	intake.QueueWith(b, `
			INSERT INTO outbox_messages (id, kind, jobs)
			SELECT m.id, kind, array_agg(made.id ORDER BY made.id)
			FROM unnest($15::uuid[], $16::text[]) AS m (id, kind) JOIN made USING (kind)
			GROUP BY m.id, kind`, ids, kinds)
}
