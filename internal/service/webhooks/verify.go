package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/store/agenda"
	"triprize/internal/store/webhook"
)

// challenged is the data of a challenge.
type challenged struct {
	ID        uuid.UUID `json:"id"`
	Challenge string    `json:"challenge"`
}

// verify asks the URL of an endpoint once whether it wants events. Its events wait until it has
// echoed the challenge, which only the message has: no API shows it, and no table.
func (t *turn) verify(ctx context.Context) error {
	answer, err := t.challenge(ctx)
	if err != nil {
		return err
	}
	if answer.Err != nil && ctx.Err() != nil {
		return nil //nolint:nilerr // cut off: as if it was never sent
	}
	var c webhook.Challenge
	if told := answer.Told(); told != "" {
		c = webhook.Challenge{Error: &told, Pause: max(pause(t.endpoint.Failures), asked(answer))}
	}
	t.hit("webhooks.challenged")
	ctx = context.WithoutCancel(ctx)
	var now webhook.Endpoint
	err = postgres.Persist(ctx, func() error {
		return postgres.InTx(ctx, t.db, func(tx pgx.Tx) (err error) {
			now, err = webhook.NoteChallenge(ctx, tx, t.endpoint, c)
			return err
		})
	})
	switch {
	case errors.Is(err, agenda.ErrFenced): // it has another URL, or is disabled
		return nil
	case err != nil:
		return fmt.Errorf("webhooks.verify(%s): %w", t.endpoint.ID, err)
	}
	if c.Error != nil {
		t.logger.Info("a webhook endpoint has not echoed a challenge: no events are sent to it", "endpoint", now.ID, "client", now.Client, "error", answer.Text())
	}
	return nil
}

// challenge sends a challenge. A URL that the operator has named need not be asked.
func (t *turn) challenge(ctx context.Context) (webhookhttp.Answer, error) {
	if t.sender.Named(ctx, t.endpoint.URL) {
		return webhookhttp.Answer{Status: 200}, nil
	}
	challenge := webhookhttp.NewChallenge()
	data, err := json.Marshal(challenged{t.endpoint.ID, challenge})
	if err != nil {
		return webhookhttp.Answer{}, fault.At(err, "webhooks.challenge")
	}
	message := body(webhook.EndpointVerification, time.Now(), data)
	return t.sender.Challenge(ctx, t.endpoint.URL, webhookhttp.Message{ID: uuidv7.New().String(), Body: message, Secrets: t.secrets}, challenge), nil
}

// tell logs why a round has failed: an app sees less.
func (t *turn) tell(r webhook.Round, all []sent) {
	if r.Failed {
		t.logger.Info("a webhook endpoint takes nothing; it is tried again", "endpoint", t.endpoint.ID, "client", t.endpoint.Client, "error", all[0].answer.Text())
	}
}
