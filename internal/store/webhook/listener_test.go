package webhook_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/store/webhook"
	"triprize/internal/testkit/fixture"
)

// What was fetched, lost and fetched again has two numbers. Who has seen only the first one's
// neighbours has not seen the event.
func TestAListenerThatIsCutOffTwiceStillMissesNothing(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	l, err := create(t, db, "shop", time.Hour, 16)
	if err != nil {
		t.Fatal(err)
	}
	due := func() (ids []uuid.UUID) {
		t.Helper()
		list, err := webhook.DueEvents(t.Context(), db, l.ID, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		return ids
	}
	fetch := func(ids ...uuid.UUID) (numbers map[uuid.UUID]int64) {
		t.Helper()
		if err := inTx(t, db, func(tx pgx.Tx) (err error) {
			numbers, err = webhook.NoteFetched(t.Context(), tx, l, ids, time.Hour)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return numbers
	}
	comeBack := func(seen int64) {
		t.Helper()
		if err := inTx(t, db, func(tx pgx.Tx) (err error) {
			l, err = webhook.Resume(t.Context(), tx, l.ID, seen, time.Hour)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	emit(t, db, "shop", 2)
	both := due()
	first := fetch(both...)
	seen, lost := both[0], both[1]
	emit(t, db, "shop", 1)
	comeBack(first[seen])
	again := due() // the new one waits for longer than the lost one
	if len(again) != 2 || again[1] != lost {
		t.Fatalf("due are %v, want the new one and then %s", again, lost)
	}
	second := fetch(again...)
	comeBack(second[again[0]]) // the lost one is lost once more
	if got := due(); len(got) != 1 || got[0] != lost {
		t.Errorf("due are %v, want %s", got, lost)
	}
	comeBack(fetch(lost)[lost])
	if got := due(); len(got) != 0 {
		t.Errorf("due are %v, want none", got)
	}
}
