package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/store/job"
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
	if err != nil {
		return commandAnswer{}, err
	}
	return s.commandDone(done, "/v1/campaigns/")
}

// commandDone answers with what became of a command. What it created is found
// below path, by the id in its body; an empty path is for what cannot be read again.
func (s *Server) commandDone(done job.Accepted, path string) (commandAnswer, error) {
	if done.Replayed && !done.Reused {
		s.acceptor.replayed.Inc()
	}
	switch {
	case done.Reused:
		return commandAnswer{}, errReused
	case done.Job.Problem != nil && done.Replayed:
		return commandAnswer{}, &replayedRefusal{done.Job.Problem.Err()}
	case done.Job.Problem != nil:
		return commandAnswer{}, done.Job.Problem.Err()
	}
	answer := commandAnswer{status: http.StatusOK, body: done.Job.Result, replayed: done.Replayed}
	if done.Job.HTTPStatus != nil {
		answer.status = *done.Job.HTTPStatus
	}
	if answer.status == http.StatusCreated && path != "" {
		var created struct{ ID uuid.UUID }
		if err := json.Unmarshal(answer.body, &created); err != nil {
			return commandAnswer{}, err
		}
		answer.location = path + created.ID.String()
	}
	return answer, nil
}

// replayedRefusal is the refusal of an earlier request with the same key.
type replayedRefusal struct{ error }

// Unwrap returns the refusal.
func (r *replayedRefusal) Unwrap() error { return r.error }
