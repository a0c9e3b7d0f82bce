package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// What is made due by a transaction can be seen by others, and found, only after its commit.
func TestANoticeIsHeardOnceWhenItsTransactionIsOver(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var heard []string // a statement's caller hears them
	postgres.OnNotice(db, "due", func(detail string) { heard = append(heard, detail) })
	check := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(heard, want) {
			t.Errorf("%s %v are heard and not %v", when, heard, want)
		}
	}
	raise := func(message, detail string) string {
		return fmt.Sprintf(`DO $$ BEGIN RAISE NOTICE '%s' USING DETAIL = '%s'; END $$`, message, detail)
	}
	together := func(db postgres.DB, details ...string) {
		t.Helper()
		var b pgx.Batch
		for _, detail := range details {
			b.Queue(raise("due", detail))
		}
		if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
			t.Error(err)
		}
	}
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, raise("due", "a"))
		servers.Exec(t, tx, raise("another message", "of nobody"))
		together(tx, "b", "c")
		check("before the commit")
		return nil
	})
	servers.NoError(t, err)
	check("after the commit", "a", "b", "c")
	servers.Exec(t, db, raise("due", "d"))
	check("after a statement", "a", "b", "c", "d")
	together(db, "e", "f")
	check("after a batch", "a", "b", "c", "d", "e", "f")
}
