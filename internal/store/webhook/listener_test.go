package webhook_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/store/agenda"
	"triprize/internal/store/webhook"
	"triprize/internal/testkit/servers"
)

// What was fetched, lost and fetched again has two numbers. Who has seen only the first one's
// neighbours has not seen the event.
func TestAListenerThatIsCutOffTwiceStillMissesNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
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
			l, err = webhook.Resume(t.Context(), tx, l.ID, "", seen, time.Hour)
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

// Who starts to listen again and again is not shut out by what was left behind; and what is
// listened to, or has an address, stays.
func TestAListenerThatNobodyFetchesForMakesRoom(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	const most = 3
	stays, err := create(t, db, "shop", 0, most)
	if err != nil {
		t.Fatal(err)
	}
	left, err := create(t, db, "shop", time.Hour, most)
	if err != nil {
		t.Fatal(err)
	}
	fetching, err := create(t, db, "shop", time.Hour, most)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, db, "shop", time.Hour, most); fault.CodeOf(err) != fault.StateConflict {
		t.Fatalf("while all are fetched for: %v", err)
	}
	clock.MoveOn(2 * time.Minute)
	note := func(l webhook.Endpoint) error {
		return inTx(t, db, func(tx pgx.Tx) error { _, err := webhook.NoteFetched(t.Context(), tx, l, nil, time.Hour); return err })
	}
	if err := note(fetching); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, db, "shop", time.Hour, most); err != nil {
		t.Fatalf("although one is left behind: %v", err)
	}
	if err := note(left); !errors.Is(err, agenda.ErrFenced) {
		t.Errorf("the one that was left: %v", err)
	}
	if err := note(fetching); err != nil {
		t.Errorf("the one that is fetched for: %v", err)
	}
	if _, err := webhook.Get(t.Context(), db, stays.ID); err != nil {
		t.Error(err)
	}
}

// Every event of a client looks at all rows of its endpoints, also those that were deleted and
// not swept yet.
func TestEndpointsThatAreMadeAndDeletedAllTheTimeDoNotPileUp(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	const most, tries = 2, 200
	var refused error
	for range tries {
		e, err := create(t, db, "shop", 0, most)
		if refused = err; err != nil {
			break
		}
		if err := inTx(t, db, func(tx pgx.Tx) error { return webhook.Delete(t.Context(), tx, e.ID) }); err != nil {
			t.Fatal(err)
		}
	}
	if n := rows(t, db, "webhook_endpoints"); fault.CodeOf(refused) != fault.StateConflict || n >= tries {
		t.Fatalf("there are %d rows: %v", n, refused)
	}
	clock.MoveOn(2 * time.Minute)
	if err := inTx(t, db, func(tx pgx.Tx) error { _, err := webhook.DeleteEndpoints(t.Context(), tx, tries); return err }); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, db, "shop", 0, most); err != nil {
		t.Errorf("after the sweep: %v", err)
	}
}
