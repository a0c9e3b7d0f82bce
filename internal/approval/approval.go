// Package approval owns approval requests: what an operator asks for, and another person agrees to.
//
//	pending ─▶ approved    its request was sent: the result has what became of it
//	      ├──▶ outdated    what it is about has changed, or the requester has lost the right
//	      ├──▶ rejected
//	      ├──▶ withdrawn   by the requester
//	      └──▶ expired     24 hours after it was asked, by the database's clock
//
// A request ends once, in the transaction of the command that ends it. An approved one has its effect in the same
// transaction ([postgres.Join]): there is no request that is approved and not done.
package approval

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// State is the state of a request; the package comment has the diagram.
type State string

// The states.
const (
	Pending   State = "pending"
	Approved  State = "approved"
	Rejected  State = "rejected"
	Outdated  State = "outdated"
	Expired   State = "expired"
	Withdrawn State = "withdrawn"
)

const (
	// MaxPending is how many requests of a requester may be pending.
	MaxPending = 100
	// MaxPendingInAll is how many requests of all requesters may be pending.
	MaxPendingInAll = 1000
	// keepBody is how long the body of a request that has ended is kept.
	keepBody = 30 * 24 * time.Hour
)

// Fact is what an approver must know.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Result is what became of a request that was sent; one member is set.
type Result struct {
	Job     json.RawMessage `json:"job,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Problem json.RawMessage `json:"problem,omitempty"`
}

// Request is what was asked for.
type Request struct {
	ID          uuid.UUID
	Requester   string // whose it is: see [RequesterOf]
	Operation   string // as in approvals.required
	Target      string // the id of what it is about; of a new wallet its owner
	Path        string // of the request
	Body        []byte // canonical JSON; nil: it is not stored any longer
	RequestedBy trail.Actor
	Deciding    map[string]string // members of the target: if one has changed, the request is outdated
	Preview     []Fact
	State       State
	RequestedAt time.Time
	ExpiresAt   time.Time
	DecidedBy   *trail.Actor // nil: nobody
	DecidedAt   *time.Time
	Result      *Result
}

// RequesterOf identifies who asks: a person by issuer and subject, and otherwise the client of the key.
func RequesterOf(a trail.Actor) string {
	if a.Subject != "" {
		return a.Issuer + "\n" + a.Subject
	}
	return a.Client
}

// state is the state of a row, swept or not.
const state = `CASE WHEN t.state = 'pending' AND t.expires_at <= clock_timestamp() THEN 'expired' ELSE t.state END`

const columns = `t.id, t.requester, t.operation, t.target, t.path, t.body, t.requested_by, t.deciding, t.preview, ` + state + `, t.requested_at, t.expires_at,
	t.decided_by, coalesce(t.decided_at, CASE WHEN t.expires_at <= clock_timestamp() THEN t.expires_at END), t.result`

// Insert stores a request as pending, with its id and times. With too many pending ones it is a state-conflict Error.
func Insert(ctx context.Context, tx pgx.Tx, r *Request) error {
	var own, all int
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('approvals', 0))`) // or two would count at once
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT count(*) FILTER (WHERE requester = $1), count(*) FROM approvals WHERE state = 'pending' AND expires_at > clock_timestamp()`, r.Requester).Scan(&own, &all)
	}
	switch {
	case err != nil:
		return fault.At(err, "approval.Insert")
	case own >= MaxPending:
		return fault.New(fault.StateConflict, "%d of your requests wait for approval already: withdraw some, or wait until they are decided", own)
	case all >= MaxPendingInAll:
		return fault.New(fault.StateConflict, "%d requests wait for approval already: wait until some are decided", all)
	}
	r.ID = uuidv7.New()
	made, err := postgres.CollectOne(ctx, tx, pgx.RowToStructByPos[Request], `
		INSERT INTO approvals AS t (id, requester, operation, target, path, body, requested_by, deciding, preview) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		RETURNING `+columns, r.ID, r.Requester, r.Operation, r.Target, r.Path, r.Body, r.RequestedBy, r.Deciding, r.Preview)
	*r = made
	return fault.At(err, "approval.Insert")
}

// Get returns a request.
func Get(ctx context.Context, db postgres.DB, id uuid.UUID) (Request, error) {
	return one(ctx, db, id, "")
}

// Lock locks a pending request, and returns it. One that has ended is a state-conflict Error.
func Lock(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Request, error) {
	r, err := one(ctx, tx, id, ` FOR UPDATE`)
	if err == nil && r.State != Pending {
		err = fault.New(fault.StateConflict, "the request is %s", r.State)
	}
	return r, err
}

func one(ctx context.Context, db postgres.DB, id uuid.UUID, lock string) (Request, error) {
	r, err := postgres.CollectOne(ctx, db, pgx.RowToStructByPos[Request], `SELECT `+columns+` FROM approvals t WHERE id = $1`+lock, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fault.New(fault.NotFound, "there is no approval request %s", id)
	}
	return r, fault.At(err, "approval.Get(%s)", id)
}

// GetAll returns those of the requests that exist, in any order.
func GetAll(ctx context.Context, db postgres.DB, ids []uuid.UUID) ([]Request, error) {
	list, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Request], `SELECT `+columns+` FROM approvals t WHERE id = ANY($1)`, ids)
	return list, fault.At(err, "approval.GetAll")
}

// List returns requests in a state newest first, and the id before which the next page begins; zero: none does. An empty
// state selects all.
func List(ctx context.Context, db postgres.DB, in State, p postgres.ListPage) (list []Request, next uuid.UUID, err error) {
	l := postgres.List[Request]{From: "approvals", Alias: "t", Columns: columns, Scan: pgx.RowToStructByPos[Request], ID: func(r Request) uuid.UUID { return r.ID }}
	if in != "" && in != Expired { // one that is not swept yet has another
		l.Along("state", string(in))
	}
	if in != "" {
		l.Only(state+` = ?`, string(in))
	}
	list, next, err = l.Page(ctx, db, p)
	return list, next, fault.At(err, "approval.List")
}

// End ends a request that is locked.
func (r *Request) End(ctx context.Context, tx pgx.Tx, as State, by trail.Actor, result *Result) error {
	ended, err := postgres.CollectOne(ctx, tx, pgx.RowToStructByPos[Request], `
		UPDATE approvals t SET state = $2, decided_by = $3, decided_at = clock_timestamp(), result = $4
		WHERE id = $1 AND state = 'pending' AND expires_at > clock_timestamp() RETURNING `+columns, r.ID, string(as), by, result)
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.StateConflict, "the request has just expired")
	}
	*r = ended
	return fault.At(err, "approval.End")
}

// Movement is money that a requester moves at wallets of an owner.
type Movement struct {
	Requester, Operation string
	Owner                string // client and owner of the wallet
	Currency             string
	Amount               int64 // minor units
}

// Add records a movement in the transaction that makes it.
func (m Movement) Add(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `INSERT INTO approval_movements (requester, operation, owner, currency, amount) VALUES ($1, $2, $3, $4, $5)`, m.Requester, m.Operation, m.Owner, m.Currency, m.Amount)
	return fault.At(err, "approval.Movement.Add")
}

// Fits reports whether a movement is at most a sum together with those of the last 24 hours. Until tx ends, no other
// movement by the requester at this owner is judged.
func (m Movement) Fits(ctx context.Context, tx pgx.Tx, most int64) (fits bool, err error) {
	_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 1))`, m.Requester+"\n"+m.Owner)
	if err == nil {
		err = tx.QueryRow(ctx, `
			SELECT coalesce(sum(amount), 0) + $5 <= $6 FROM approval_movements
			WHERE requester = $1 AND operation = $2 AND owner = $3 AND currency = $4 AND at > clock_timestamp() - interval '24 hours'`,
			m.Requester, m.Operation, m.Owner, m.Currency, m.Amount, most).Scan(&fits)
	}
	return fits, fault.At(err, "approval.Movement.Fits")
}
