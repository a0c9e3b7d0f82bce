package client_test

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/uuid"

	"triprize.example/client"
)

func say(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// asError finds a refusal in the tree of err.
func asError(err error) (refused *client.Error, ok bool) {
	ok = errors.As(err, &refused)
	return refused, ok
}

// refuseWith answers with a problem.
func refuseWith(w http.ResponseWriter, status int, code, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	w.Header().Set("X-Request-ID", "request-1")
	say(w, status, client.Problem{Code: code, Status: status, Detail: "because"})
}

func job(id client.JobID, state client.JobState) client.Job {
	j := client.Job{ID: id, Kind: "purchase", State: state}
	switch state {
	case client.JobStateSucceeded:
		j.Result = json.RawMessage(`{"purchase_id":"` + uuid.NewString() + `","positions":[{"layer":3,"column":2,"price":100}],"amount":100,"currency":"JPY"}`)
	case client.JobStateFailed:
		j.Problem = &client.Problem{Code: client.CodeSoldOut, Status: http.StatusConflict, Detail: "every position is sold"}
	}
	return j
}

var (
	campaign = uuid.MustParse("01999f4e-0000-7d20-9c55-3f8a1b2c4d5e")
	jobID    = uuid.MustParse("01999f4e-8b1c-7d20-9c55-3f8a1b2c4d5e")
	one      = client.PurchaseRequest{UserID: "user-1", Selection: client.Selection{Quantity: 1},
		Payment: client.PaymentDraft{Method: client.PaymentDraftMethodExternal}}
)
