package books

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/trail"
)

// Encode writes the lines of a journal in the form that is hashed, the CSV of its export, to w: first says that the head is
// written before.
type Encode func(w hash.Hash, first bool) (write func(Line) error, flush func() error)

// progress is what was read of a month that is being closed.
type progress struct {
	Entries int64   `json:"entries"`
	Totals  []Total `json:"totals"`
	Hash    []byte  `json:"hash"`  // the state of SHA-256; empty: nothing was hashed
	After   place   `json:"after"` // the last entry that was read of a day that is read in part
}

// partSize is how many entries are read before the progress is stored: far fewer than a run of a sweep has time for. The entry of a
// campaign, whose purchases are all read, ends a part.
var partSize = 20_000

// errTaken means that another process has advanced the month.
var errTaken = errors.New("books: another process closes the month")

// Advance does what is left of closing a month, and stores its progress after each part of a day. It returns the name of the
// month that it has closed, and how many parts it has read.
func Advance(ctx context.Context, db postgres.Pool, encode Encode) (closed string, parts int, err error) {
	m, err := postgres.CollectOne(ctx, db, scanMonth, `SELECT `+monthColumns+` FROM book_periods WHERE closed_at IS NULL`)
	if found, err := postgres.Found(err); err != nil || !found {
		return "", 0, fault.At(err, "books.Advance")
	}
	if err := m.awaitOlder(ctx, db); err != nil {
		return "", 0, err
	}
	p, err := m.Period()
	if err != nil {
		return "", 0, err
	}
	for day := range (Period{m.DoneUntil.In(p.From.Location()), p.To}).Days() {
		for m.DoneUntil.Before(day.To) {
			if err := m.advance(ctx, db, day, encode); err != nil {
				return "", parts, err
			}
			parts++
		}
		failpoint.Hit("books.day", func() []string { return []string{day.From.Format(time.DateOnly)} })
	}
	if err := m.finish(ctx, db, p); err != nil {
		return "", parts, err
	}
	return m.Name, parts, nil
}

// awaitOlder fails while a transaction is open that writes and is older than the fence, of whatever role, or prepared: it may not know of the
// closing. It is tried again a moment later. One that has not written yet knows of it, and what it dates is younger than the
// month: that is over for an hour.
func (m *Month) awaitOlder(ctx context.Context, db postgres.DB) error {
	if _, err := db.Exec(ctx, `UPDATE book_periods SET fence = pg_current_xact_id() WHERE name = $1 AND closed_at IS NULL AND (fence IS NULL OR fence > pg_current_xact_id())`, m.Name); err != nil {
		return fault.At(err, "books.awaitOlder")
	}
	older, err := postgres.OlderWriter(ctx, db, `(SELECT fence FROM book_periods WHERE name = $1)`, m.Name)
	if err != nil || older == "" {
		return fault.At(err, "books.awaitOlder")
	}
	return fmt.Errorf("books: a transaction is older than the closing of %s, and must end first: %s", m.Name, older)
}

// advance reads a part of a day, and stores what it adds.
func (m *Month) advance(ctx context.Context, db postgres.DB, day Period, encode Encode) error {
	before := day.From.Before(m.StartsAt)
	sums, rules, next := newBook(m.Progress.Totals, m.Opening), Rules{m.EarnedAt, m.Numbers}, m.Progress
	state, err := resume(m.Progress.Hash)
	if err != nil {
		return err
	}
	write, flush := encode(state, len(m.Progress.Hash) == 0)
	n, doneUntil := 0, day.To
	next.After = place{}
	for e, err := range entriesOf(ctx, db, day, m.Progress.After, rules.EarnedAt) {
		if err != nil {
			return err
		}
		if !before {
			next.Entries++
		}
		for i := range e.sides {
			line := e.line(i, day, rules, next.Entries)
			if before {
				sums.addBefore(line)
				continue
			}
			if err := write(line); err != nil {
				return err
			}
			sums.add(line)
		}
		if n++; n == partSize || e.Kind == campaigns {
			next.After, doneUntil = e.place, m.DoneUntil
			break
		}
	}
	if !before {
		if err := flush(); err != nil {
			return err
		}
		next.Totals = sums.sums()
		if next.Hash, err = state.MarshalBinary(); err != nil {
			return err
		}
	}
	opening := sums.openings()
	tag, err := db.Exec(ctx, `
		UPDATE book_periods SET done_until = $3, progress = $4, opening = $5
		WHERE name = $1 AND done_until = $2 AND progress::jsonb = $6::jsonb AND closed_at IS NULL`, m.Name, m.DoneUntil, doneUntil, next, opening, m.Progress)
	if err == nil && tag.RowsAffected() != 1 {
		err = errTaken
	}
	if err != nil {
		return fault.At(err, "books.Advance(%s)", day.From.Format(time.DateOnly))
	}
	m.DoneUntil, m.Progress, m.Opening = doneUntil, next, opening
	return nil
}

// hashing is a SHA-256 whose state can be stored.
type hashing interface {
	hash.Hash
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

func resume(stored []byte) (hashing, error) {
	state, ok := sha256.New().(hashing)
	if !ok {
		return nil, errors.New("books: the state of SHA-256 cannot be stored")
	}
	if len(stored) == 0 {
		return state, nil
	}
	return state, state.UnmarshalBinary(stored)
}

// finish stores hash and sums, and seals them in the audit trail.
func (m *Month) finish(ctx context.Context, db postgres.Pool, p Period) error {
	state, err := resume(m.Progress.Hash)
	if err != nil {
		return err
	}
	var before []Provider
	last, err := postgres.Collect(ctx, db, scanMonth, `SELECT `+monthColumns+` FROM book_periods WHERE ends_at = $1`, m.StartsAt)
	if err != nil {
		return fault.At(err, "books.finish(%s)", m.Name)
	}
	for _, l := range last {
		before = l.Statement.Provider
	}
	report, err := reportOf(ctx, db, p, p.From, before)
	if err != nil {
		return err
	}
	statement, err := json.Marshal(newBook(m.Progress.Totals, m.Opening).statement(report))
	if err != nil {
		return err
	}
	sum, sums := state.Sum(nil), sha256.Sum256(statement)
	err = postgres.InTx(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE book_periods SET closed_at = clock_timestamp(), entries = $2, hash = $3, statement = $4
			WHERE name = $1 AND done_until = ends_at AND closed_at IS NULL`, m.Name, m.Progress.Entries, sum, statement)
		if err == nil && tag.RowsAffected() != 1 {
			err = errTaken
		}
		if err != nil {
			return err
		}
		failpoint.Hit("books.finish", func() []string { return []string{m.Name} })
		by := trail.Actor{Client: "system", Via: "system", Operation: sealed, Target: m.Name}
		_, err = tx.Exec(ctx, trail.Insert("$1"), trail.Rows(by.Entry(uuid.Nil, nil, map[string]any{"hash": hex.EncodeToString(sum), "entries": m.Progress.Entries, "statement": hex.EncodeToString(sums[:])})))
		return err
	})
	return fault.At(err, "books.finish(%s)", m.Name)
}

// sealed is the operation of the trail that has the hash of a month, and that of its sums.
const sealed = "sealMonth"

// Verify makes the journal of a closed month again. It returns how it differs from what was stored; none: it is the same.
func Verify(ctx context.Context, db postgres.DB, m Month, encode Encode) (differences []string, err error) {
	p, err := m.Period()
	if err != nil {
		return nil, err
	}
	state, entries, sums := sha256.New(), int64(0), newBook(nil, nil)
	write, flush := encode(state, true)
	for day := range p.Days() {
		for line, err := range journalOf(ctx, db, day, Rules{m.EarnedAt, m.Numbers}, &entries) {
			if err == nil {
				err = write(line)
			}
			if err != nil {
				return nil, err
			}
			sums.add(line)
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	if entries != postgres.ValueOf(m.Entries) {
		differences = append(differences, fmt.Sprintf("%d entries, and %d were closed", entries, postgres.ValueOf(m.Entries)))
	}
	for _, t := range m.Statement.Totals {
		key := Total{Kind: t.Kind, Account: t.Account, Method: t.Method, Currency: t.Currency}
		if now := sums.totals[key]; now == nil || *now != t {
			differences = append(differences, fmt.Sprintf("%s %s %s %s: %d debit and %d credit were closed, and now are %v", t.Kind, t.Account, t.Method, t.Currency, t.Debit, t.Credit, now))
		}
	}
	if sum := state.Sum(nil); !bytes.Equal(sum, m.Hash) {
		differences = append(differences, fmt.Sprintf("its hash is %x, and %x was closed", sum, m.Hash))
	}
	var inTrail bool
	if err := db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM audit_trail t JOIN book_periods p ON p.name = t.target WHERE p.name = $1 AND t.operation = $2
		AND t.after ->> 'hash' = encode(p.hash, 'hex') AND t.after ->> 'statement' = encode(sha256(convert_to(p.statement::text, 'UTF8')), 'hex'))`, m.Name, sealed).Scan(&inTrail); err != nil {
		return nil, fault.At(err, "books.Verify(%s)", m.Name)
	}
	if !inTrail {
		differences = append(differences, "the audit trail has another hash, or other sums")
	}
	return differences, nil
}

// ClosingMonths is the sweep that advances the closing of a month.
func ClosingMonths(db postgres.Pool, encode Encode) sweep.Sweep {
	return sweep.Sweep{Name: "closing-months", Every: 5 * time.Second, Interruptible: true, Counts: []string{"parts", "months"}, Run: func(ctx context.Context, run sweep.Run) error {
		closed, parts, err := Advance(ctx, db, encode)
		run.Counts["parts"] += parts
		if closed != "" {
			run.Counts["months"]++
		}
		switch {
		case errors.Is(err, errTaken):
			return nil
		case parts > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return sweep.ErrMore
		}
		return err
	}}
}
