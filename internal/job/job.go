// Package job owns accepted work: jobs, their idempotency keys, and the outbox. A job is the promise
// behind a 202.
//
//	        ┌──────────────────────▶ succeeded
//	queued ─┤──▶ awaiting_action ──┬▶
//	        └──────────────────────┴▶ failed
//
// awaiting_action is for payments that need the buyer. After [QueueBegun] only the payment
// of its purchase ends a job.
//
// [Intake] takes requests, in batches, and [Accept] makes queued jobs of them for workers (package delivery).
// [Once] and [OnceEach] do a command at once and leave a final job. Each effect happens exactly once:
//
//   - [QueueComplete] says WHERE state IN ('queued', 'awaiting_action'), in the transaction
//     of the job's effect, and a wrong row count rolls both back.
//   - UNIQUE (client, idempotency_key) gives the same job to all requests with the same
//     key; a request with another hash is refused.
//   - From its second delivery on, a job's attempts are counted before it is tried
//     ([Begin]), so a job that kills its worker is given up.
//
// A [Message] is one task in the queue, for several jobs of one kind, written to the table
// outbox_messages in the commit that makes the jobs.
//
//	[Accept] ── one commit: jobs and messages ──▶ [queue.Dispatcher] ──▶ queue ──▶ worker ──▶ [DeleteMessages]
//	                        ▲                                            │
//	                        └──────────── [LostJobs] ◀── lost ───────────┘
//
// A task is enqueued after the commit, and no request waits for that. If that fails, or the queue
// loses the task, the sweep lost-jobs finds the overdue message and issues it again. A worker
// snoozes jobs whose campaign stays locked ([Snooze]): they wait without a task until the sweep
// finds the campaign free ([Resume]). So after every commit each queued job is in a message, and is
// delivered at least once.
//
// [Jobs] notifies the clients of a process of changed jobs, with few queries.
package job

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
)

// State is the state of a job.
type State string

// The states; the package comment has the diagram.
const (
	Queued         State = "queued"
	AwaitingAction State = "awaiting_action"
	Succeeded      State = "succeeded"
	Failed         State = "failed"
)

// Final reports whether a job in this state will never change again.
func (s State) Final() bool { return s == Succeeded || s == Failed }

// Kind is what a job is about. The kind of work for a worker is a noun, and also
// names the queue of its tasks. A command is answered at once and leaves a job
// behind as its idempotency record; its kind is a noun and a verb.
type Kind string

// The kinds that workers handle.
const (
	KindPurchase     Kind = "purchase"
	KindCancellation Kind = "cancellation"
	KindDraw         Kind = "draw"

	KindCampaignCancellation Kind = "campaign-cancellation"
	KindErasure              Kind = "erasure" // of a user
)

// The kinds of tasks about leased rows, see package lease.
const (
	KindPayment     Kind = "payment"
	KindRefund      Kind = "refund"
	KindEvent       Kind = "payment-event"
	KindWebhook     Kind = "webhook"
	KindWebhookSlow Kind = "webhook-slow" // of endpoints that fail, or answer slowly
)

// The kinds of commands.
const (
	KindCampaignCreate       Kind = "campaign-create"
	KindCampaignPublish      Kind = "campaign-publish"
	KindCampaignPause        Kind = "campaign-pause"
	KindCampaignResume       Kind = "campaign-resume"
	KindPositionsBlock       Kind = "positions-block"
	KindPositionsUnblock     Kind = "positions-unblock"
	KindHoldCreate           Kind = "hold-create"
	KindHoldExtend           Kind = "hold-extend"
	KindWalletOpen           Kind = "wallet-open"
	KindWalletCredit         Kind = "wallet-credit"
	KindWalletDebit          Kind = "wallet-debit"
	KindTransferCreate       Kind = "transfer-create"
	KindAuthorizationCreate  Kind = "authorization-create"
	KindAuthorizationCapture Kind = "authorization-capture"
	KindAuthorizationVoid    Kind = "authorization-void"
	KindRefundRetry          Kind = "refund-retry"
	KindRefundResolve        Kind = "refund-resolve"
	KindRefundsResolve       Kind = "refunds-resolve"
	KindPaymentRetry         Kind = "payment-retry"
	KindPaymentResolve       Kind = "payment-resolve"
	KindPaymentTry           Kind = "payment-try"
	KindDiscrepancyExplain   Kind = "discrepancy-explain"
	KindMonthClose           Kind = "month-close"
	KindApproval             Kind = "approval" // a request for another person's approval, or what ends one

	KindEndpointCreate   Kind = "webhook-endpoint-create"
	KindEndpointEnable   Kind = "webhook-endpoint-enable"
	KindEndpointDisable  Kind = "webhook-endpoint-disable"
	KindEndpointTest     Kind = "webhook-endpoint-test"
	KindSecretRotate     Kind = "webhook-secret-rotate"
	KindDeliveryReplay   Kind = "webhook-delivery-replay"
	KindDeliveriesReplay Kind = "webhook-deliveries-replay"
)

// QueueKinds are the kinds of jobs that workers handle.
var QueueKinds = []Kind{KindPurchase, KindCancellation, KindCampaignCancellation, KindDraw, KindErasure}

// TaskKinds are the kinds of tasks. Each has a queue and a share of every worker, so that none
// waits for another.
var TaskKinds = append(slices.Clip(QueueKinds), KindPayment, KindRefund, KindEvent, KindWebhook, KindWebhookSlow)

// System is the client of jobs that Triprize makes itself.
const System = "system"

// EveryClient stands for all clients of a user.
const EveryClient = "all"

// Tool is the client of jobs that operators make with triprize.
const Tool = "triprize"

// Job is one accepted piece of work.
type Job struct {
	ID         uuid.UUID
	Client     string // whose it is, and the scope of Key
	Key        string // the idempotency key; of a user of the client, in a scope of its own
	Hash       [sha256.Size]byte
	Kind       Kind
	CampaignID *uuid.UUID
	UserID     *string
	AcceptedAt time.Time
	Status
	Origin
}

// Status is what changes of a job.
type Status struct {
	State      State
	Result     json.RawMessage
	Problem    *Problem
	HTTPStatus *int // of a command that was answered at once
	Attempts   int
	FinishedAt *time.Time
	PurchaseID *uuid.UUID // that it has begun, or wants to take back; see QueueBegun
	Progress   *Progress  // of a job that is not final
}

// Origin is the request that a job comes from: its own, or that of the job which made it. It is
// empty where a sweep made the job.
type Origin struct {
	RequestID   string // its X-Request-ID
	Traceparent string // the trace that it is in (W3C Trace Context, version 00); empty: none
}

// Progress is how far a job has come while it is not final.
type Progress struct {
	NextAction *NextAction `json:"next_action,omitempty"`
	Waiting    *Blocked    `json:"waiting,omitempty"`
	Refunds    *Refunds    `json:"refunds,omitempty"`
}

// NextAction is what a payment needs from the buyer.
type NextAction struct {
	Type      ActionType           `json:"type"`
	URL       string               `json:"url,omitempty"`     // with ActionRedirect
	Decline   *payprovider.Decline `json:"decline,omitempty"` // with ActionPaymentMethod
	ExpiresAt time.Time            `json:"expires_at"`
}

// ActionType is what a buyer has to do.
type ActionType string

// The types of actions.
const (
	ActionRedirect      ActionType = "redirect"       // go to a page
	ActionPaymentMethod ActionType = "payment_method" // bring another payment method: the last one was declined
)

// Blocked is why a job waits, and when it is retried.
type Blocked struct {
	Reason  string    `json:"reason"`
	RetryAt time.Time `json:"retry_at"`
}

// Refunds is how far the cancellation of a campaign has come, in purchases.
type Refunds struct {
	Total   int `json:"total"`
	Done    int `json:"done"`    // refunded, or listed for the app to refund
	Waiting int `json:"waiting"` // for an operator, or for their buyer: the job does not wait
}

// Problem is why a job failed, as it is stored. The rest of a problem document
// follows from the code.
type Problem struct {
	Code   fault.Code    `json:"code"`
	Detail string        `json:"detail"`
	Fields []fault.Field `json:"fields,omitempty"`
	About  fault.About   `json:"about,omitzero"` // see fault.Error

	RetryAt     time.Time `json:"retry_at,omitzero"`      // see fault.Error
	DeclineCode string    `json:"decline_code,omitempty"` // see fault.Error
	Advice      string    `json:"advice,omitempty"`       // see fault.Error
}

// ProblemOf returns the part of an error that is stored. Of an internal error that
// is only the code; the rest belongs in the log.
func ProblemOf(err error) Problem {
	f := fault.From(err)
	return Problem{Code: f.Code, Detail: f.Message, Fields: f.Fields, About: f.About, RetryAt: f.RetryAt, DeclineCode: f.DeclineCode, Advice: f.Advice}
}

// Err returns the problem as the error it came from.
func (p Problem) Err() *fault.Error {
	return &fault.Error{Code: p.Code, Message: p.Detail, Fields: p.Fields, About: p.About, RetryAt: p.RetryAt, DeclineCode: p.DeclineCode, Advice: p.Advice}
}
