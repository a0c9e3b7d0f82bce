package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrNotFinal means that a job has no result yet.
var ErrNotFinal = errors.New("client: the job is not final yet")

const (
	longestWait  = 30 * time.Second // what servers allow by default
	shortestWait = time.Second      // between two requests for a job, if the server does not say
)

// Purchased is the result of a purchase.
type Purchased struct {
	PurchaseID PurchaseID       `json:"purchase_id"`
	Positions  []PricedPosition `json:"positions"`
	Amount     int64            `json:"amount"` // in minor units
	Currency   Currency         `json:"currency"`
}

// Buy requests a purchase and waits until its job is final. It also returns when the
// job awaits an action of the buyer, see NextAction.Type: send the buyer to NextAction.URL, and
// call FollowJob or Wait; or bring another card, see Pay.
// A failed job is not an error of Buy: see Purchased. When the campaign never sells again there
// may be no job, and Buy returns the *Error that Purchased would. When ctx ends during the
// wait, Buy returns the last known job with the error.
func (c *Client) Buy(ctx context.Context, campaign CampaignID, what PurchaseRequest, options ...CallOption) (Job, error) {
	job, err := c.RequestPurchase(ctx, campaign, what, append([]CallOption{WithWait(waitFor(ctx))}, options...)...)
	return c.untilBuyer(ctx, job, err)
}

// BuyHold is Buy of the positions of a hold, for its user.
func (c *Client) BuyHold(ctx context.Context, hold Hold, payment PaymentDraft, options ...CallOption) (Job, error) {
	return c.Buy(ctx, hold.CampaignID, PurchaseRequest{UserID: hold.UserID, Selection: Selection{HoldID: hold.ID}, Payment: payment}, options...)
}

// Pay brings another payment method for a purchase by card that awaits its buyer, after a decline
// or instead of an authentication, and waits as Buy does: until the job of the purchase is final,
// or awaits the buyer again.
func (c *Client) Pay(ctx context.Context, purchase PurchaseID, what PaymentTry, options ...CallOption) (Job, error) {
	job, err := c.TryPayment(ctx, purchase, what, append([]CallOption{WithWait(waitFor(ctx))}, options...)...)
	return c.untilBuyer(ctx, job, err)
}

// untilBuyer goes on from the answer to a purchase until its job is final, or awaits the buyer.
func (c *Client) untilBuyer(ctx context.Context, job Job, err error) (Job, error) {
	if err != nil || job.Final() || job.AwaitsAction() {
		return job, err
	}
	return c.wait(ctx, job, false)
}

// Cancel cancels a purchase and waits until that has succeeded or failed: see Cancelled. When ctx
// ends during the wait, it returns the last known job with the error.
func (c *Client) Cancel(ctx context.Context, purchase PurchaseID, what CancellationRequest, options ...CallOption) (Job, error) {
	job, err := c.CancelPurchase(ctx, purchase, what, append([]CallOption{WithWait(waitFor(ctx))}, options...)...)
	if err != nil || job.Final() {
		return job, err
	}
	return c.wait(ctx, job, true)
}

// Wait waits until a job is final or ctx ends, also while it awaits an action of the
// buyer: FollowJob tells at once that a card was declined. When ctx ends, it returns the last known job with the error.
func (c *Client) Wait(ctx context.Context, id JobID) (Job, error) {
	return c.wait(ctx, Job{ID: id}, true)
}

// wait asks for the job again and again. The server waits before each answer, as long
// as it allows; if it does not wait, Retry-After is respected.
func (c *Client) wait(ctx context.Context, job Job, untilFinal bool) (Job, error) {
	id := job.ID
	if id == (JobID{}) {
		return job, fmt.Errorf("client: %w", &malformedError{errors.New("a job without an id")})
	}
	for {
		asked := time.Now()
		var headers http.Header
		now, err := c.GetJob(ctx, id, GetJobParams{}, WithWait(waitFor(ctx)), func(r *request) { r.headers, r.untilFinal = &headers, untilFinal })
		if err != nil {
			return job, err
		}
		if now.ID != id {
			return job, fmt.Errorf("client: GET %s: %w", path("/v1/jobs/%s", id), &malformedError{errors.New("it is not the job")})
		}
		if job = now; job.Final() || job.AwaitsAction() && !untilFinal {
			return job, nil
		}
		if err := sleep(ctx, max(retryAfter(headers), shortestWait)-time.Since(asked)); err != nil {
			return job, fmt.Errorf("client: waiting for job %s: %w", id, err)
		}
	}
}

// waitFor returns how long the server may wait, so that it can answer before the
// deadline of ctx. After a late answer the caller would not even know the job's id.
func waitFor(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return longestWait
	}
	return max(0, min(longestWait, time.Until(deadline)-time.Second))
}

// AwaitsAction tells whether the buyer has something to do: what NextAction says.
func (j Job) AwaitsAction() bool { return j.State == JobStateAwaitingAction }

// Final tells whether the job has succeeded or failed; then it does not change any more.
func (j Job) Final() bool { return j.State == JobStateSucceeded || j.State == JobStateFailed }

// Err returns why the job has failed, as an *Error; nil when it has not.
func (j Job) Err() error {
	switch {
	case j.State != JobStateFailed:
		return nil
	case j.Problem == nil:
		return &Error{Problem: Problem{Code: CodeInternalError, Status: http.StatusInternalServerError, Detail: "the job failed and does not say why"}}
	}
	return &Error{Problem: *j.Problem}
}

// Purchased returns the result of a purchase job. For a failed job the error is that
// of Err; for a job that is not final it is ErrNotFinal.
func (j Job) Purchased() (Purchased, error) {
	bought, err := resultOf[Purchased](j, "purchase")
	if err == nil && len(bought.Positions) == 0 {
		return Purchased{}, fmt.Errorf("client: job %s: %w", j.ID, &malformedError{errors.New("a purchase without positions")})
	}
	return bought, err
}

// Cancelled is the result of a cancellation.
type Cancelled struct {
	PurchaseID PurchaseID       `json:"purchase_id"`
	State      PurchaseState    `json:"state"`     // cancelled; refunding: a card is being refunded; completed: it keeps other positions
	Positions  []PricedPosition `json:"positions"` // free again
	Amount     int64            `json:"amount"`    // to be refunded, in minor units
	Currency   Currency         `json:"currency"`
}

// CampaignCancelled is the result of the cancellation of a campaign.
type CampaignCancelled struct {
	CampaignID CampaignID    `json:"campaign_id"`
	State      CampaignState `json:"state"` // cancelled
	Refunded   struct {
		Wallet   int `json:"wallet"`
		Card     int `json:"card"`
		External int `json:"external"` // listed: your app pays these back, see Refunds
	} `json:"refunded"` // in purchases; without those in Waiting
	Waiting int `json:"waiting"` // card refunds that wait for an operator
}

// Cancelled returns the result of a cancellation job, with errors as Purchased.
func (j Job) Cancelled() (Cancelled, error) {
	cancelled, err := resultOf[Cancelled](j, "cancellation")
	if err == nil && len(cancelled.Positions) == 0 {
		return Cancelled{}, fmt.Errorf("client: job %s: %w", j.ID, &malformedError{errors.New("a cancellation without positions")})
	}
	return cancelled, err
}

// CampaignCancelled returns the result of a campaign-cancellation job, with errors as
// Purchased.
func (j Job) CampaignCancelled() (CampaignCancelled, error) {
	return resultOf[CampaignCancelled](j, "campaign-cancellation")
}

// Drawn returns the result of a draw job: winners, secret and root, with errors as
// Purchased.
func (j Job) Drawn() (Draw, error) {
	drawn, err := resultOf[Draw](j, "draw")
	if err == nil {
		drawn.State = CampaignStateCompleted // the result does not have it
	}
	return drawn, err
}

func resultOf[T any](j Job, kind string) (T, error) {
	var result, none T
	if err := j.Err(); err != nil {
		return none, err
	}
	if !j.Final() {
		return none, ErrNotFinal
	}
	if j.Kind != kind {
		return none, fmt.Errorf("client: job %s is a %s, not a %s", j.ID, j.Kind, kind)
	}
	if err := json.Unmarshal(j.Result, &result); err != nil {
		return none, fmt.Errorf("client: result of job %s: %w", j.ID, &malformedError{err})
	}
	return result, nil
}
