package httpapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/store/job"
)

// Where what commands create is found.
const (
	campaignsPath = "/v1/campaigns/"
	holdsPath     = "/v1/holds/"
	walletsPath   = "/v1/wallets/"
)

// command is the request of a call for something that is answered at once, with
// the status that it is answered with when it succeeds.
func (s *Server) command(ctx context.Context, kind job.Kind, status int) (job.Request, error) {
	c, err := callOf(ctx)
	if err != nil {
		return job.Request{}, err
	}
	return job.Request{ID: uuidv7.New(), Client: c.client, Key: c.key, Hash: c.fingerprint, Kind: kind,
		Keep: s.settings.Retention.Jobs, HTTPStatus: status}, nil
}

// commandDone answers with what became of a command, now or when it was first
// asked for. What it created is found below path, by the id in its body; an empty
// path is for what cannot be read again.
func (s *Server) commandDone(done job.Accepted, err error, path string) (commandAnswer, error) {
	if err != nil {
		return commandAnswer{}, err
	}
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
