package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/job"
)

// The paths of the resources that commands create; the id follows.
const (
	campaignsPath = "/v1/campaigns/"
	holdsPath     = "/v1/holds/"
	walletsPath   = "/v1/wallets/"
)

// command returns the job request of a command, which is done and answered at once.
// status is that of the answer when it succeeds.
func (s *Server) command(ctx context.Context, kind job.Kind, status int) (job.Request, error) {
	c, err := callOf(ctx)
	if err != nil {
		return job.Request{}, err
	}
	return job.Request{ID: uuidv7.New(), Client: c.client, Key: c.key, Hash: c.fingerprint, Kind: kind,
		Keep: s.settings.Retention.Jobs, HTTPStatus: status}, nil
}

// commandDone answers with the result of a command, or of the first request with
// its key. The Location of a created resource is path and the id in the body;
// without a path there is none.
func (s *Server) commandDone(done job.Accepted, err error, path string) (commandAnswer, error) {
	if err != nil {
		return commandAnswer{}, err
	}
	if done.Replayed && !done.Reused {
		s.acceptor.replayed.Inc()
	}
	switch {
	case done.Reused:
		return commandAnswer{}, reused(done.Job)
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
