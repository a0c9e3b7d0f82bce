package resource

import (
	"bytes"
	"encoding/json"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/job"
)

// Job is a job, for its client and operators.
func Job(j job.Job) contract.Job {
	d := contract.Job{ID: j.ID, Kind: string(j.Kind), State: contract.JobState(j.State), CampaignID: j.CampaignID, PurchaseID: purchaseOf(j),
		Attempts: j.Attempts, AcceptedAt: j.AcceptedAt, FinishedAt: j.FinishedAt, Result: j.Result, Problem: problemOfJob(j.Problem)}
	if j.UserID != nil {
		d.UserID = *j.UserID
	}
	if j.Progress == nil {
		return d
	}
	if r := j.Progress.Refunds; r != nil { // stays, as a part of what has come of it
		d.Refunds = &contract.RefundProgress{Total: r.Total, Done: r.Done, Waiting: r.Waiting}
	}
	if j.State.Final() {
		return d
	}
	if a := j.Progress.NextAction; a != nil && j.State == job.AwaitingAction {
		d.NextAction = &contract.NextAction{Type: contract.NextActionType(a.Type), URL: a.URL, Decline: decline(a.Decline), ExpiresAt: a.ExpiresAt}
	}
	if w := j.Progress.Waiting; w != nil {
		d.Waiting, d.RetryAt = &contract.Waiting{Reason: w.Reason, RetryAt: w.RetryAt}, &w.RetryAt
	}
	return d
}

// uuidText is the length of a UUID as text.
const uuidText = 36

// purchaseOf returns the purchase that a job is about: the one that it has begun, or that
// of its result.
func purchaseOf(j job.Job) *uuid.UUID {
	if j.PurchaseID != nil || j.Kind != job.KindPurchase && j.Kind != job.KindCancellation || len(j.Result) == 0 {
		return j.PurchaseID
	}
	if rest, ok := bytes.CutPrefix(j.Result, []byte(`{"purchase_id":"`)); ok && len(rest) > uuidText { // as most are: they need no decoder
		if id, err := uuid.ParseBytes(rest[:uuidText]); err == nil {
			return &id
		}
	}
	var result struct {
		PurchaseID *uuid.UUID `json:"purchase_id"`
	}
	_ = json.Unmarshal(j.Result, &result) // what has no purchase has none
	return result.PurchaseID
}
