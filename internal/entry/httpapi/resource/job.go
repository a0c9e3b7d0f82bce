package resource

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/job"
)

// Job is a job, for its client and operators.
func Job(j job.Job) contract.Job {
	d := contract.Job{ID: j.ID, Kind: string(j.Kind), State: contract.JobState(j.State), CampaignID: j.CampaignID, PurchaseID: purchaseOf(j),
		Attempts: j.Attempts, AcceptedAt: j.AcceptedAt, FinishedAt: j.FinishedAt, Result: Result(j), Problem: problemOfJob(j.Problem)}
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
		d.NextAction = &contract.NextAction{Type: contract.NextActionType(a.Type), URL: a.URL, ExpiresAt: a.ExpiresAt}
	}
	if w := j.Progress.Waiting; w != nil {
		d.Waiting, d.RetryAt = &contract.Waiting{Reason: w.Reason, RetryAt: w.RetryAt}, &w.RetryAt
	}
	return d
}

// placeOf is a position in the result of a job: layer, then column.
var placeOf = regexp.MustCompile(`"layer":\s*([0-9]{1,4}),\s*"column":\s*([0-9]{1,4})`)

// Result is the result of a job, or nil. What processes of before migration 00020 have sold
// and held is of triangles without labels, and its positions have no number and no label:
// they get them here, because the contract promises them.
func Result(j job.Job) json.RawMessage {
	if !bytes.Contains(j.Result, []byte(`"column":`)) || bytes.Contains(j.Result, []byte(`"number":`)) {
		return j.Result
	}
	return placeOf.ReplaceAllFunc(j.Result, func(text []byte) []byte {
		found := placeOf.FindSubmatch(text)
		layer, _ := strconv.Atoi(string(found[1])) // digits
		column, _ := strconv.Atoi(string(found[2]))
		place := shape.OfTriangle(shape.Position{Layer: layer, Column: column})
		return fmt.Appendf(slices.Clip(text), `,"number":%d,"label":%q`, place.Number, place.Label)
	})
}

// purchaseOf returns the purchase that a job is about: the one that it has begun, or that
// of its result.
func purchaseOf(j job.Job) *uuid.UUID {
	if j.PurchaseID != nil || j.Kind != job.KindPurchase && j.Kind != job.KindCancellation || len(j.Result) == 0 {
		return j.PurchaseID
	}
	var result struct {
		PurchaseID *uuid.UUID `json:"purchase_id"`
	}
	_ = json.Unmarshal(j.Result, &result) // what has no purchase has none
	return result.PurchaseID
}
