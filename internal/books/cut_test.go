//go:build failpoint

package books_test

import (
	"encoding/hex"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// Wherever a scheduler dies, the next one goes on, and what is stored is the same.
func TestAClosingThatIsCutOffGoesOn(t *testing.T) {
	t.Parallel()
	db, clock := clocked(t)
	clock("2027-03-02")
	facts(t, db, "2027-01-01 12:00+00")
	facts(t, db, "2027-02-01 12:00+00")
	for _, month := range []string{"2027-01", "2027-02"} {
		c := books.Closing{Month: month, Zone: "UTC", By: "operator:test", Rules: now}
		servers.NoError(t, postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			_, err := c.Close(t.Context(), tx)
			return err
		}))
		for _, at := range []struct{ point, about string }{
			{"books.page", month + "-01 payment"}, {"books.day", month + "-01"}, {"books.page", month + "-17 refund"}, {"books.day", month + "-28"}, {"books.finish", month},
		} {
			done := make(chan struct{})
			remove := failpoint.Set(at.point, at.about, runtime.Goexit)
			go func() {
				defer close(done)
				_, _, err := books.Advance(t.Context(), db, export.Hashed)
				t.Errorf("%s was not reached: %v", at.about, err)
			}()
			<-done
			remove()
			if m, err := books.GetMonth(t.Context(), db, month); err != nil || m.ClosedAt != nil {
				t.Fatalf("%s: closed at %v, %v", at.about, m.ClosedAt, err)
			}
		}
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
