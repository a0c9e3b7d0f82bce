//go:build failpoint

package books_test

import (
	"context"
	"encoding/hex"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/servers"
)

// Wherever a scheduler dies, the next one goes on, and what is stored is the same.
func TestAClosingThatIsCutOffGoesOn(t *testing.T) {
	t.Parallel()
	db, clock := clocked(t)
	clock("2027-03-02")
	facts(t, db, "2027-01-01 12:00+00")
	facts(t, db, "2027-02-01 12:00+00")
	servers.Exec(t, db, `
		INSERT INTO book_facts (day, kind, document_id, at, debit, credit, amount, currency)
		SELECT day, 'payment', 'another-' || n, day + interval '9 hours', 'receivable', 'unearned', n, 'EUR'
		FROM unnest('{2027-01-17,2027-02-17}'::date[]) AS day, generate_series(1, 9) AS n`) // more than a part
	for _, month := range []string{"2027-01", "2027-02"} {
		c := books.Closing{Month: month, Zone: "UTC", By: "operator:test", Rules: now}
		servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			_, err := c.Close(t.Context(), tx)
			return err
		}))
		cut := func(point, about string) {
			done := make(chan struct{})
			remove := failpoint.Set(point, about, runtime.Goexit)
			go func() {
				defer close(done)
				_, _, err := books.Advance(t.Context(), db, export.Hashed)
				t.Errorf("%s was not reached: %v", about, err)
			}()
			<-done
			remove()
			if m, err := books.GetMonth(t.Context(), db, month); err != nil || m.ClosedAt != nil {
				t.Fatalf("%s: closed at %v, %v", about, m.ClosedAt, err)
			}
		}
		cut("books.page", month+"-01 payment")
		cut("books.day", month+"-01")
		cut("books.page", month+"-17 refund") // of which a part is stored
		cut("books.day", month+"-26")
		late := &late{t.Context(), make(chan struct{})}
		remove := failpoint.Set("books.page", month+"-28 payment", func() { close(late.done) })
		if err := books.ClosingMonths(db, export.Hashed).Run(late, sweep.Run{Counts: sweep.Counts{}}); !errors.Is(err, sweep.ErrMore) {
			t.Errorf("a run whose time is over after some parts: %v", err)
		}
		remove()
		cut("books.finish", month)
		name, _, err := books.Advance(t.Context(), db, export.Hashed)
		if err != nil || name != month {
			t.Fatal(name, err)
		}
		m, err := books.GetMonth(t.Context(), db, month)
		servers.NoError(t, err)
		p, err := m.Period()
		servers.NoError(t, err)
		same(t, month, hex.EncodeToString(m.Hash), exported(t, db, p.From.Format(time.DateOnly), p.To.Format(time.DateOnly), "UTC"))
		same(t, month, verified(t, db, m), "")
		if n := servers.Value[int](t, db, `SELECT count(*)::int FROM audit_trail WHERE operation = 'sealMonth' AND target = $1 AND after ->> 'hash' = $2`, month, hex.EncodeToString(m.Hash)); n != 1 {
			t.Errorf("%s is in the trail %d times", month, n)
		}
	}
}

// late is a context whose deadline comes when done is closed.
type late struct {
	context.Context //nolint:containedctx // it is one
	done            chan struct{}
}

func (l *late) Done() <-chan struct{} { return l.done }

func (l *late) Err() error {
	select {
	case <-l.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
