package httpapi

import (
	"context"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/job"
)

// command runs something that is answered at once, exactly once per key, and
// answers with what it returned: now, or when it was first asked for.
func (s *Server) command(ctx context.Context, kind job.Kind, campaignID uuid.UUID,
	do func(tx pgx.Tx) (status int, body any, err error),
) (commandAnswer, error) {
	c, err := callOf(ctx)
	if err != nil {
		return commandAnswer{}, err
	}
	done, err := job.Once(ctx, s.db, job.Request{ID: job.NewID(), Client: c.client, Key: c.key, Hash: c.fingerprint,
		Kind: kind, CampaignID: campaignID, Keep: s.settings.Retention.Jobs}, do)
	switch {
	case err != nil:
		return commandAnswer{}, err
	case done.Reused:
		return commandAnswer{}, errReused
	case done.Job.Problem != nil && done.Replayed:
		return commandAnswer{}, &replayedRefusal{done.Job.Problem.Err()}
	case done.Job.Problem != nil:
		return commandAnswer{}, done.Job.Problem.Err()
	}
	answer := commandAnswer{status: http.StatusOK, body: done.Job.Result, replayed: done.Replayed,
		location: "/v1/campaigns/" + done.Job.CampaignID.String()}
	if done.Job.HTTPStatus != nil {
		answer.status = *done.Job.HTTPStatus
	}
	return answer, nil
}

// replayedRefusal is the refusal of an earlier request with the same key.
type replayedRefusal struct{ error }

// Unwrap returns the refusal.
func (r *replayedRefusal) Unwrap() error { return r.error }
