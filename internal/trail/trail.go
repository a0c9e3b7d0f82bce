// Package trail owns the audit trail: what operators have changed.
//
// A row is written in the transaction of its change: with the job of a command (package job), or by [Write]. What apps,
// users and the system do is in no row, except that an app erases a user. Triggers let nobody change a row; what is done without them is found by [Seals]
// and the audit. The rows have no chain among them: it would put all operators in a line, behind the slowest publication.
package trail

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
)

// Operations are those of the contract that are recorded when an operator calls them: all that change something.
var Operations = strings.Fields(`createCampaign patchCampaign publishCampaign pauseCampaign resumeCampaign cancelCampaign blockPositions unblockPositions
	requestDraw submitDrawRound voidDraw requestPurchase cancelPurchase tryPayment createHold extendHold releaseHold retryPayment resolvePayment
	retryRefund resolveRefund resolveRefunds explainPaymentDiscrepancy openWallet creditWallet debitWallet transfer authorize captureAuthorization
	voidAuthorization createWebhookEndpoint patchWebhookEndpoint deleteWebhookEndpoint enableWebhookEndpoint disableWebhookEndpoint
	eraseUser rotateWebhookSecret testWebhookEndpoint replayWebhookDelivery replayWebhookDeliveries runSweep revokeKey closeMonth approveRequest rejectRequest withdrawRequest`)

// Persons is the client of those who sign in with accounts. No key's client may be called so.
const Persons = "oidc"

// SignInByKey is the operation of who signs in to the console by a key where accounts do (console.sign_in: both).
const SignInByKey = "signInByKey"

// OtherOperations are recorded beside [Operations] and the commands of the terminal.
var OtherOperations = []string{"requestApproval", "outdateRequest", "expireRequest", "sealMonth", SignInByKey}

// Actor is an operator who changes something, and how and why. What is not known is empty.
type Actor struct {
	Operator  string `json:"operator,omitempty"`
	Client    string `json:"client"` // of the key; of the command line the role of the database
	KeyPrefix string `json:"key_prefix,omitempty"`
	Address   string `json:"address,omitempty"`
	Via       string `json:"via"`       // api, console, cli or system
	Operation string `json:"operation"` // of the contract, or a command
	Target    string `json:"target"`    // the id of the resource; empty: what is made, by the id in its document, or else the job
	Reason    string `json:"reason,omitempty"`

	// Of a person who has signed in with an account: then Operator is verified, and not a claim.
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Email   string `json:"email,omitempty"` // as the provider says it

	// Of a change that needed another person's approval.
	ApprovalID *uuid.UUID `json:"approval_id,omitempty"`
	ApprovedBy string     `json:"approved_by,omitempty"` // JSON: who has approved it, and why
}

type actorKey struct{}

// With returns a context for changes by an actor; nil: none.
func With(ctx context.Context, a *Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, a)
}

// Of returns the actor of a context, or nil: what is done then is not recorded.
func Of(ctx context.Context) *Actor {
	a, _ := ctx.Value(actorKey{}).(*Actor)
	return a
}

// Entry is a row.
type Entry struct {
	ID uuid.UUID `json:"id"`
	Actor
	JobID  *uuid.UUID `json:"job_id"`
	Before string     `json:"before"` // JSON, as it is sealed; empty or null: none
	After  string     `json:"after"`
	Texts  []text     `json:"texts"` // that may be about a person: in their place is [text.hash]
	At     time.Time  `json:"-"`     // by the database's clock
	Seal   *int64     `json:"-"`     // nil: the next one
}

// longest is the longest member of a document in a row. Of a longer one, such as the layers of a large campaign, the row has the hash.
const longest = 16 << 10

// Entry returns the row of a change. before and after are documents of ours. Only objects are stored; of two, the
// members that differ.
func (a Actor) Entry(job uuid.UUID, before, after any) Entry {
	was, is := membersOf(before), membersOf(after)
	if a.Target == "" {
		_ = json.Unmarshal(is["id"], &a.Target)
	}
	if a.Target == "" && job != uuid.Nil {
		a.Target = job.String()
	}
	for name, now := range is {
		if bytes.Equal(was[name], now) {
			delete(was, name)
			delete(is, name)
		}
	}
	e := Entry{ID: uuidv7.New(), Actor: a, JobID: postgres.Nullable(job)}
	e.Before, e.After = textOf(e.conceal(was)), textOf(e.conceal(is))
	if e.Reason != "" {
		_ = json.Unmarshal(e.hide(json.RawMessage(textOf(e.Reason))), &e.Reason)
	}
	if e.ApprovedBy != "" {
		e.ApprovedBy = textOf(e.conceal(membersOf(json.RawMessage(e.ApprovedBy))))
	}
	return e
}

// text is what may be about a person, so that it can be forgotten.
type text struct {
	Salt []byte `json:"salt"`
	Text string `json:"text"` // JSON
}

// hide takes a value out of a row, and returns what stands in its place: "sha256:…", of salt and text.
func (e *Entry) hide(value json.RawMessage) json.RawMessage {
	t := text{make([]byte, 16), string(value)}
	_, _ = rand.Read(t.Salt) // never fails
	e.Texts = append(e.Texts, t)
	return json.RawMessage(fmt.Sprintf(`"sha256:%x"`, sha256.Sum256(append(t.Salt, t.Text...))))
}

// ofPersons are members that may be about a person.
var ofPersons = strings.Fields(`user_id owner_id holder metadata payment_reference reference description reason cancel_reason cancelled_by resolve_reason resolved_by
	partial_cancellations explanation target preview decline`)

func (e *Entry) conceal(members map[string]json.RawMessage) map[string]json.RawMessage {
	for name, member := range members {
		switch {
		case string(member) == "null":
		case slices.Contains(ofPersons, name):
			members[name] = e.hide(member)
		case member[0] == '{':
			members[name] = json.RawMessage(textOf(e.conceal(membersOf(member))))
		case member[0] == '[':
			var list []json.RawMessage
			_ = json.Unmarshal(member, &list)
			for i, one := range list {
				list[i] = e.conceal(map[string]json.RawMessage{"": one})[""]
			}
			members[name] = json.RawMessage(textOf(list))
		}
	}
	return members
}

// forgotten are members that no row has, since jobs forget them: what a buyer pays with, and where the bank sends it.
var forgotten = []string{"payment_method", "return_url"}

func membersOf(document any) (members map[string]json.RawMessage) {
	_ = json.Unmarshal([]byte(textOf(document)), &members) // of what is no object there are none
	for name, member := range members {
		if slices.Contains(forgotten, name) {
			delete(members, name)
		} else if member[0] == '{' && name != "metadata" { // those are a customer's own
			member = json.RawMessage(textOf(membersOf(member)))
			members[name] = member
		}
		if len(member) > longest {
			members[name] = json.RawMessage(fmt.Sprintf(`"%d bytes, SHA-256 %x"`, len(member), sha256.Sum256(member)))
		}
	}
	return members
}

func textOf(document any) string {
	text, _ := json.Marshal(document)
	return string(text)
}

// Insert inserts [Rows], which are the parameter of this name, such as $1.
func Insert(parameter string) string {
	return `WITH texts AS (` + insertTexts(parameter) + `) ` + insertRows(parameter)
}

// InsertOf is Insert as common table expressions, for the entries of jobs that jobs selects.
func InsertOf(parameter, jobs string) string {
	return `texts AS (` + insertTexts(parameter) + ` WHERE r.job_id IN (` + jobs + `)), changes AS (` + insertRows(parameter) + ` WHERE r.job_id IN (` + jobs + `))`
}

func insertTexts(parameter string) string {
	return `INSERT INTO audit_texts (hash, salt, text, entry_id)
		SELECT sha256(t.salt || convert_to(t.text, 'UTF8')), t.salt, t.text, r.id FROM json_to_recordset(` + parameter + `::json) AS r (id uuid, job_id uuid, texts json)
		CROSS JOIN LATERAL (SELECT decode(x.salt, 'base64') AS salt, x.text FROM json_to_recordset(r.texts) AS x (salt text, text text)) t`
}

func insertRows(parameter string) string {
	return `INSERT INTO audit_trail (id, operator, client, key_prefix, address, via, operation, target, job_id, reason, issuer, subject, email, approval_id, approved_by, before, after)
		SELECT id, operator, client, key_prefix, address, via, operation, target, job_id, reason, issuer, subject, email, approval_id, approved_by::json, nullif(before, 'null')::json, nullif(after, 'null')::json
		FROM json_to_recordset(` + parameter + `::json) AS r (id uuid, operator text, client text, key_prefix text, address text, via text, operation text,
			target text, job_id uuid, reason text, issuer text, subject text, email text, approval_id uuid, approved_by text, before text, after text)`
}

// Rows returns rows as [Insert] takes them.
func Rows(entries ...Entry) string { return textOf(entries) }

// Write writes the row of a change by the actor of ctx, in the transaction of the change. Without one it does nothing.
func Write(ctx context.Context, db postgres.DB, before, after any) error {
	a := Of(ctx)
	if a == nil {
		return nil
	}
	_, err := db.Exec(ctx, Insert("$1"), Rows(a.Entry(uuid.Nil, before, after)))
	return fault.At(err, "trail.Write(%s)", a.Operation)
}

// Forget deletes the texts about erasures of a user that have its id in them. No text there has a NUL.
func Forget(ctx context.Context, tx pgx.Tx, userID string) error {
	_, err := tx.Exec(ctx, `DELETE FROM audit_texts t WHERE position($2 IN t.text::json #>> '{}') > 0 AND t.entry_id IN (
		SELECT x.entry_id FROM audit_texts x JOIN audit_trail a ON a.id = x.entry_id WHERE a.operation = $1 AND `+isUser+`)`, erase, userID)
	return fault.At(err, "trail.Forget")
}

// idAge is more than a process's clock and the database's differ, and than a change takes from its id to its row.
const idAge = time.Hour

// Filter selects rows; what is empty selects all.
type Filter struct {
	Target, Key, Operator, Operation string
	Since, Until                     time.Time // until: before it
}

// List returns rows newest first, and the id before which the next page begins; zero: none does.
func List(ctx context.Context, db postgres.DB, f Filter, p postgres.ListPage) (list []Entry, next uuid.UUID, err error) {
	l := postgres.List[Entry]{From: "audit_trail", Alias: "t", ID: func(e Entry) uuid.UUID { return e.ID }, Scan: pgx.RowToStructByPos[Entry],
		Columns: `id, coalesce(operator, ''), client, coalesce(key_prefix, ''), coalesce(address, ''), via, operation, target, coalesce(reason, ''), coalesce(issuer, ''), coalesce(subject, ''), coalesce(email, ''), approval_id, coalesce(approved_by::text, ''), job_id,
			coalesce(before::text, ''), coalesce(after::text, ''), NULL::json, at, seal`}
	isAlong := false // an index: the first of those that have one
	for _, by := range [][2]string{{"target", f.Target}, {"key_prefix", f.Key}, {"operator", f.Operator}, {"operation", f.Operation}} {
		switch {
		case by[1] == "":
		case !isAlong && by[0] != "operation":
			l.Along(by[0], by[1])
			isAlong = true
		default:
			l.Also(`t.`+by[0]+` = ?`, by[1])
		}
	}
	if !f.Since.IsZero() { // a row is written soon after its id is made
		l.Only(`t.id >= ?`, uuidv7.FirstAt(f.Since.Add(-idAge)))
		l.Also(`t.at >= ?`, f.Since)
	}
	if !f.Until.IsZero() {
		l.Only(`t.id < ?`, uuidv7.FirstAt(f.Until.Add(idAge)))
		l.Also(`t.at < ?`, f.Until)
	}
	if list, next, err = l.Page(ctx, db, p); err == nil {
		err = reveal(ctx, db, list)
	}
	return list, next, fault.At(err, "trail.List")
}

// reveal puts the texts of rows where they were. What was erased is left out: it stays "sha256:…".
func reveal(ctx context.Context, db postgres.DB, list []Entry) error {
	ids, at := make([]uuid.UUID, len(list)), make(map[uuid.UUID]*Entry, len(list))
	for i := range list {
		ids[i], at[list[i].ID] = list[i].ID, &list[i]
	}
	rows, err := db.Query(ctx, `SELECT entry_id, 'sha256:' || encode(hash, 'hex'), text FROM audit_texts WHERE entry_id = ANY($1)`, ids)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var hash, text string
	_, err = pgx.ForEachRow(rows, []any{&id, &hash, &text}, func() error {
		e := at[id]
		if e.Reason == hash {
			return json.Unmarshal([]byte(text), &e.Reason)
		}
		for _, document := range []*string{&e.Before, &e.After, &e.ApprovedBy} {
			*document = strings.Replace(*document, `"`+hash+`"`, text, 1)
		}
		return nil
	})
	return err
}
