package reconciliation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
)

// Kind is what a discrepancy is.
type Kind string

// The kinds of discrepancies.
const (
	UnknownHere     Kind = "unknown-here"     // the provider has it, and our books do not
	UnknownThere    Kind = "unknown-there"    // our books have it, and the provider has not
	Differs         Kind = "differs"          // another amount, currency, purchase or end
	UnknownCategory Kind = "unknown-category" // it is not known what the money is
)

// State is what is to be done about a discrepancy.
type State string

// The states of a discrepancy.
const (
	Open      State = "open"
	Explained State = "explained" // an operator knows why
	Closed    State = "closed"    // the books agree again
)

// Discrepancy is something that the provider's books and ours disagree about. Amounts are
// in minor units; nil: that side has none.
type Discrepancy struct {
	ID            uuid.UUID  `json:"-"`
	Kind          Kind       `json:"kind,omitempty"`
	ObjectID      string     `json:"reference,omitempty"` // pi_…, re_… or du_… of the provider; a reporting category
	TransactionID *string    `json:"transaction,omitempty"`
	PurchaseID    *uuid.UUID `json:"purchase_id"`
	HereAmount    *int64     `json:"here_amount"`
	HereCurrency  *string    `json:"here_currency"`
	ThereAmount   *int64     `json:"there_amount"`
	ThereCurrency *string    `json:"there_currency"`
	Detail        string     `json:"detail"`
	FoundAt       time.Time  `json:"-"`
	ClosedAt      *time.Time `json:"-"`
	ExplainedBy   *string    `json:"-"`
	Explanation   *string    `json:"-"`
	ExplainedAt   *time.Time `json:"-"`
	Version       int64      `json:"-"`        // grows with its amounts
	UnderWay      bool       `db:"-" json:"-"` // here, when it was found: after two days that is no excuse
}

// State returns the state.
func (d Discrepancy) State() State {
	switch {
	case d.ClosedAt != nil:
		return Closed
	case d.ExplainedAt != nil:
		return Explained
	}
	return Open
}

const columns = `d.id, d.kind, d.object_id, d.transaction_id, d.purchase_id, d.here_amount, d.here_currency, d.there_amount, d.there_currency, d.detail,
	d.found_at, d.closed_at, d.explained_by, d.explanation, d.explained_at, d.version`

// same is the condition that what an operator has said of a discrepancy still counts: it was not closed, and is over the
// same amounts. Of an unknown category they grow.
const same = `(d.closed_at IS NULL AND (d.kind = 'unknown-category' OR (d.here_amount, d.here_currency, d.there_amount, d.there_currency)
	IS NOT DISTINCT FROM (excluded.here_amount, excluded.here_currency, excluded.there_amount, excluded.there_currency)))`

// List returns the discrepancies in a state (empty: in any), in the order in which they were
// found first, after the given one (zero: from the start).
func List(ctx context.Context, db postgres.DB, state State, after uuid.UUID, limit int) ([]Discrepancy, error) {
	where := map[State]string{
		Open: `closed_at IS NULL AND explained_at IS NULL`, Explained: `closed_at IS NULL AND explained_at IS NOT NULL`, Closed: `closed_at IS NOT NULL`,
	}[state]
	list, err := postgres.Collect(ctx, db, pgx.RowToStructByPos[Discrepancy], `
		SELECT `+columns+` FROM payment_discrepancies d WHERE `+cmp.Or(where, `true`)+` AND ($1::uuid IS NULL OR id > $1) ORDER BY id LIMIT $2`,
		postgres.Nullable(after), limit)
	return list, fault.At(err, "reconciliation.List")
}

// CountOpen counts the open discrepancies, by kind.
func CountOpen(ctx context.Context, db postgres.DB) (map[Kind]int, error) {
	counts := map[Kind]int{UnknownHere: 0, UnknownThere: 0, Differs: 0, UnknownCategory: 0}
	var kind Kind
	var n int
	err := postgres.Scan(ctx, db, func() { counts[kind] = n }, []any{&kind, &n}, `SELECT kind, count(*) FROM payment_discrepancies WHERE closed_at IS NULL AND explained_at IS NULL GROUP BY kind`)
	return counts, fault.At(err, "reconciliation.CountOpen")
}

// record records discrepancies. It returns those that are new, or have come back: what an
// operator has said of those, or of other amounts, counts no more.
func record(ctx context.Context, tx pgx.Tx, all []Discrepancy) ([]Discrepancy, error) {
	return note(ctx, tx, all, `
		ON CONFLICT (kind, object_id) DO UPDATE
		SET transaction_id = coalesce(excluded.transaction_id, d.transaction_id), purchase_id = coalesce(excluded.purchase_id, d.purchase_id),
		    here_amount = excluded.here_amount, here_currency = excluded.here_currency, there_amount = excluded.there_amount,
		    there_currency = excluded.there_currency, detail = excluded.detail, closed_at = NULL,
		    found_at = CASE WHEN d.closed_at IS NULL THEN d.found_at ELSE excluded.found_at END,
		    explained_by = CASE WHEN `+same+` THEN d.explained_by END, explanation = CASE WHEN `+same+` THEN d.explanation END,
		    explained_at = CASE WHEN `+same+` THEN d.explained_at END, version = d.version + CASE WHEN `+same+` THEN 0 ELSE 1 END`, false)
}

// RecordReported records what events have reported: open discrepancies, and closed ones for intents
// that have ended without money. Events come in any order, so what is closed stays so, and
// what the balance shows is not touched. It returns those that are new and open.
func RecordReported(ctx context.Context, tx pgx.Tx, all []Discrepancy, closed bool) ([]Discrepancy, error) {
	if closed {
		return note(ctx, tx, all, `
			ON CONFLICT (kind, object_id) DO UPDATE SET closed_at = excluded.closed_at WHERE d.transaction_id IS NULL AND d.closed_at IS NULL`, true)
	}
	return note(ctx, tx, all, `ON CONFLICT (kind, object_id) DO NOTHING`, false)
}

func note(ctx context.Context, tx pgx.Tx, all []Discrepancy, conflict string, closed bool) ([]Discrepancy, error) {
	if len(all) == 0 {
		return nil, nil
	}
	all = slices.Clone(all)
	same := func(a, b Discrepancy) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ObjectID, b.ObjectID))
	}
	slices.SortStableFunc(all, same) // two transactions wait in one order
	all = slices.CompactFunc(all, func(a, b Discrepancy) bool { return same(a, b) == 0 })
	n := len(all)
	ids, kinds, objects, transactions, purchases := make([]uuid.UUID, n), make([]string, n), make([]string, n), make([]*string, n), make([]*uuid.UUID, n)
	here, hereIn, there, thereIn, details := make([]*int64, n), make([]*string, n), make([]*int64, n), make([]*string, n), make([]string, n)
	for i, d := range all {
		ids[i], kinds[i], objects[i], transactions[i], purchases[i] = uuidv7.New(), string(d.Kind), d.ObjectID, d.TransactionID, d.PurchaseID
		here[i], hereIn[i], there[i], thereIn[i], details[i] = d.HereAmount, d.HereCurrency, d.ThereAmount, d.ThereCurrency, d.Detail
	}
	// The subquery sees the row as it was before this statement.
	type noted struct {
		Discrepancy
		IsNew bool
	}
	rows, err := postgres.Collect(ctx, tx, pgx.RowToStructByPos[noted], `
		INSERT INTO payment_discrepancies AS d (id, kind, object_id, transaction_id, purchase_id, here_amount, here_currency, there_amount, there_currency, detail, found_at, closed_at)
		SELECT t.*, clock_timestamp(), CASE WHEN $11 THEN clock_timestamp() END
		FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::bigint[], $7::text[], $8::bigint[], $9::text[], $10::text[]) AS t
		`+conflict+`
		RETURNING `+columns+`, coalesce((SELECT o.closed_at IS NOT NULL FROM payment_discrepancies o WHERE o.id = d.id), true)`,
		ids, kinds, objects, transactions, purchases, here, hereIn, there, thereIn, details, closed)
	if err != nil {
		return nil, fmt.Errorf("reconciliation.record: %w", err)
	}
	var list []Discrepancy
	for _, row := range rows {
		if row.IsNew && row.ClosedAt == nil {
			list = append(list, row.Discrepancy)
		}
	}
	return list, nil
}

// Service carries out what operators decide about discrepancies.
type Service struct {
	db     postgres.Beginner
	render func(Discrepancy) any
}

// NewService returns a Service; db is a pool, or a view of it for transactions that may wait
// for locks. render makes the answer's body from a discrepancy.
func NewService(db postgres.Beginner, render func(Discrepancy) any) *Service {
	return &Service{db: db, render: render}
}

// Explain notes why a discrepancy is none. One that is not open, or has not the version any more at which it was read, is a
// state-conflict Error, and an unknown one a not-found Error.
func (s *Service) Explain(ctx context.Context, r job.Request, id uuid.UUID, version int64, by, reason string) (job.Accepted, error) {
	lock := func(ctx context.Context, tx pgx.Tx) (Discrepancy, error) {
		d, err := postgres.CollectOne(ctx, tx, pgx.RowToStructByPos[Discrepancy], `SELECT `+columns+` FROM payment_discrepancies d WHERE id = $1 FOR UPDATE`, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return d, fault.New(fault.NotFound, "there is no discrepancy %s", id)
		}
		return d, fault.At(err, "reconciliation.Explain(%s)", id)
	}
	_, accepted, err := job.Edit(ctx, s.db, r, lock, func(b *pgx.Batch, known Discrepancy) error {
		if state := known.State(); state != Open {
			return fault.New(fault.StateConflict, "the discrepancy is %s already", state)
		}
		if known.Version != version {
			return fault.New(fault.StateConflict, "the discrepancy has changed since you read it: it has version %d, and not %d; read it again", known.Version, version)
		}
		b.Queue(`
			UPDATE payment_discrepancies SET explained_by = $2, explanation = $3, explained_at = clock_timestamp()
			WHERE id = $1 AND closed_at IS NULL AND explained_at IS NULL`, id, by, reason).Exec(postgres.Exactly(1, "open discrepancies"))
		return nil
	}, s.render)
	return accepted, err
}
