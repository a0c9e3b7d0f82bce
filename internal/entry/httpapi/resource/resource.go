// Package resource makes the documents of the API: campaign, hold, purchase, job, wallet.
//
// Answers, streams and webhooks all use it, so they show the same. A document leaves out
// some fields for some callers: see [Role].
package resource

import (
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/platform/token"
	"triprize/internal/wallet"
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

// purchaseOf returns the purchase that a job has begun, made (with its own id), or taken back, as its result says.
func purchaseOf(j job.Job) *uuid.UUID {
	switch {
	case j.PurchaseID != nil:
		return j.PurchaseID
	case j.Kind == job.KindPurchase && j.State == job.Succeeded:
		id := j.ID // a pointer to j.ID would move j to the heap
		return &id
	case j.Kind != job.KindCancellation || len(j.Result) == 0:
		return nil
	}
	var result struct {
		PurchaseID *uuid.UUID `json:"purchase_id"`
	}
	_ = json.Unmarshal(j.Result, &result) // what has no purchase has none
	return result.PurchaseID
}

// Statuses is the one place where a kind of error gets its HTTP status.
var Statuses = map[fault.Kind]int{
	fault.KindInternal:         http.StatusInternalServerError,
	fault.KindInvalid:          http.StatusBadRequest,
	fault.KindUnauthenticated:  http.StatusUnauthorized,
	fault.KindForbidden:        http.StatusForbidden,
	fault.KindNotFound:         http.StatusNotFound,
	fault.KindMethodNotAllowed: http.StatusMethodNotAllowed,
	fault.KindTooLarge:         http.StatusRequestEntityTooLarge,
	fault.KindUnsupported:      http.StatusUnsupportedMediaType,
	fault.KindLength:           http.StatusLengthRequired,
	fault.KindTimeout:          http.StatusRequestTimeout,
	fault.KindHeaders:          http.StatusRequestHeaderFieldsTooLarge,
	fault.KindConflict:         http.StatusConflict,
	fault.KindGone:             http.StatusGone,
	fault.KindMismatch:         http.StatusPreconditionFailed,
	fault.KindReused:           http.StatusUnprocessableEntity,
	fault.KindLimited:          http.StatusTooManyRequests,
	fault.KindUnavailable:      http.StatusServiceUnavailable,
}

// Problem describes an error; in an answer the caller adds instance and request id.
func Problem(f *fault.Error) contract.Problem {
	p := contract.Problem{Type: "/problems#" + string(f.Code), Title: f.Code.Title(), Status: Statuses[f.Code.Kind()],
		Detail: f.Message, Code: string(f.Code),
		DeclineCode: f.DeclineCode, Advice: f.Advice}
	if a := f.About; a.ID != "" {
		p.About = &contract.About{Kind: contract.AboutKind(a.Kind), ID: a.ID, JobID: a.JobID}
	}
	if !f.RetryAt.IsZero() {
		p.RetryAt = &f.RetryAt
	}
	for _, field := range f.Fields {
		p.Errors = append(p.Errors, contract.FieldError{Pointer: field.Pointer, Detail: field.Detail})
	}
	return p
}

func problemOfJob(p *job.Problem) *contract.Problem {
	if p == nil {
		return nil
	}
	return new(Problem(p.Err()))
}

// Role is who reads a document, or asks for work; the contract lists the roles of each
// operation.
type Role string

// The roles: of API keys and persons, and of tokens.
const (
	Operator  = Role(key.Operator) // everything
	Viewer    = Role(key.Viewer)   // reads what operators read, and changes nothing
	App       = Role(key.App)      // all that is its client's
	User      = Role(token.User)   // its own purchases
	Public    = Role(token.Public) // reads without personal data
	Anonymous = Role("anonymous")  // has no credential; its client is its address
)

// SeesAll reports whether somebody is shown what operators are.
func (who Role) SeesAll() bool { return who == Operator || who == Viewer }

// SeesMetadata reports whether somebody is shown what apps write on resources for themselves:
// ids of their own books, names of clerks. Buyers and the public are not.
func (who Role) SeesMetadata() bool { return who.SeesAll() || who == App }

// metadataFor returns the metadata that who is shown: {} for none, and nil for somebody who
// does not see any.
func metadataFor(m metadata.Map, who Role) *contract.Metadata {
	if !who.SeesMetadata() {
		return nil
	}
	shown := contract.Metadata(m)
	if shown == nil {
		shown = contract.Metadata{}
	}
	return &shown
}

// Wallet is a wallet as it is now.
func Wallet(w wallet.Wallet, who Role) contract.Wallet {
	d := contract.Wallet{ID: w.ID, OwnerID: w.Owner.ID, Currency: w.Currency, Balance: int64(w.Balance), Held: int64(w.Held),
		Available: int64(w.Available()), Version: w.Version, Metadata: metadataFor(w.Metadata, who)}
	if who.SeesMetadata() {
		d.Client = w.Client
	}
	return d
}

// Transfer is a transfer between two wallets.
func Transfer(e wallet.Entry, who Role) contract.Transfer {
	return contract.Transfer{ID: e.ID, From: e.Debit.Wallet, To: e.Credit.Wallet, Amount: int64(e.Amount), Currency: e.Currency,
		Description: e.Description, Reference: e.Reference.Text, CreatedAt: e.CreatedAt, Metadata: metadataFor(e.Metadata, who)}
}

// Authorization is an authorization as it is now.
func Authorization(a wallet.Authorization, who Role) contract.Authorization {
	return contract.Authorization{ID: a.ID, WalletID: a.WalletID, Amount: int64(a.Amount), Captured: int64(a.Captured),
		State: contract.AuthorizationState(a.State), Description: a.Description, ExpiresAt: a.ExpiresAt, CreatedAt: a.CreatedAt, Metadata: metadataFor(a.Metadata, who)}
}

// WalletEvent is what one entry of the ledger did to a wallet.
func WalletEvent(e wallet.Event, who Role) contract.WalletEvent {
	d := contract.WalletEvent{Version: e.Version, Kind: contract.WalletEventKind(e.Entry.Kind), EntryID: e.Entry.ID, DeltaBalance: int64(e.DeltaBalance),
		DeltaHeld: int64(e.DeltaHeld), Balance: int64(e.Balance), Held: int64(e.Held), From: sideJSON(e.Entry.Debit), To: sideJSON(e.Entry.Credit), Amount: int64(e.Entry.Amount),
		Reference: e.Entry.Reference.Text, Description: e.Entry.Description, Actor: roleFor(e.Entry.Actor, who), At: e.At, Metadata: metadataFor(e.Entry.Metadata, who)}
	if e.Entry.Authorization != uuid.Nil {
		d.AuthorizationID = &e.Entry.Authorization
	}
	if e.Entry.PurchaseID != uuid.Nil {
		d.PurchaseID = &e.Entry.PurchaseID
	}
	return d
}

// sideJSON names a side of an entry: a wallet by its id, an account by its name.
func sideJSON(s wallet.Side) string {
	if s.Wallet != uuid.Nil {
		return s.Wallet.String()
	}
	return string(s.Account)
}
