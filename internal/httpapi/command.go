package httpapi

import (
	"net/http"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/apikey"
	"triprize/internal/fault"
	"triprize/internal/job"
)

// command runs something that is answered at once, exactly once per key, and
// answers with what it returned: now, or when it was first asked for.
func (s *Server) command(c *fiber.Ctx, who apikey.Key, kind job.Kind, campaignID uuid.UUID, canonical []byte,
	do func(tx pgx.Tx) (status int, body any, err error),
) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	done, err := job.Once(ctx, s.db, job.Request{ID: job.NewID(), Client: who.Client, Key: key, Hash: fingerprint(c, canonical),
		Kind: kind, CampaignID: campaignID, Keep: s.settings.Retention.Jobs}, do)
	if err != nil {
		return err
	}
	if done.Reused {
		return fault.New(fault.KeyReused, "this Idempotency-Key was used for a different request; use a fresh key")
	}
	if done.Replayed {
		c.Set("Idempotent-Replayed", "true")
	}
	if done.Job.Problem != nil {
		return done.Job.Problem.Err()
	}
	status := http.StatusOK
	if done.Job.HTTPStatus != nil {
		status = *done.Job.HTTPStatus
	}
	if status == http.StatusCreated {
		c.Set(fiber.HeaderLocation, "/v1/campaigns/"+done.Job.CampaignID.String())
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.Status(status).Send(done.Job.Result)
}
