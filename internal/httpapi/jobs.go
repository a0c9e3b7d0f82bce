package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/apikey"
	"triprize/internal/fault"
	"triprize/internal/job"
)

// jobDocument is a job as the contract shows it.
type jobDocument struct {
	ID         uuid.UUID       `json:"id"`
	Kind       job.Kind        `json:"kind"`
	State      job.State       `json:"state"`
	CampaignID *uuid.UUID      `json:"campaign_id"`
	Attempts   int             `json:"attempts"`
	AcceptedAt time.Time       `json:"accepted_at"`
	FinishedAt *time.Time      `json:"finished_at"`
	RetryAt    *time.Time      `json:"retry_at"` // when a payment is tried again
	Result     json.RawMessage `json:"result"`
	Problem    *problem        `json:"problem"`
	NextAction json.RawMessage `json:"next_action"` // what a card payment needs from the buyer
}

func jobJSON(j job.Job) jobDocument {
	return jobDocument{ID: j.ID, Kind: j.Kind, State: j.State, CampaignID: j.CampaignID, Attempts: j.Attempts,
		AcceptedAt: j.AcceptedAt, FinishedAt: j.FinishedAt, Result: j.Result, Problem: problemOfJob(j.Problem)}
}

// getJob answers with a job, or after the wait that the client prefers: 200
// when it is final, 202 when the time is over.
func (s *Server) getJob(c *fiber.Ctx, who apikey.Key) error {
	id, err := pathID(c, "job")
	if err != nil {
		return err
	}
	ctx, cancel := s.context()
	defer cancel()
	j, err := job.Get(ctx, s.db, id)
	if err != nil {
		return err
	}
	if who.Role != apikey.Operator && j.Client != who.Client {
		return fault.New(fault.NotFound, "there is no job %s", id)
	}
	wait := preferredWait(c, s.settings.API.MaxWait)
	if j, err = s.await(j, wait, nil); err != nil {
		return err
	}
	body, err := json.Marshal(jobJSON(j))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if !j.State.Final() {
		c.Set(fiber.HeaderRetryAfter, retryAfter)
		if wait > 0 {
			status = http.StatusAccepted
		}
	}
	return s.answer(c, status, j.ID, wait, body)
}
