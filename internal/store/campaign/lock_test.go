package campaign_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/testkit/fixture"
)

// locked runs one of the statements that lock, and returns what it locked.
func locked(t *testing.T, tx pgx.Tx, sql string, ids ...uuid.UUID) []uuid.UUID {
	t.Helper()
	rows, err := tx.Query(t.Context(), sql, ids)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// sales reads what purchases are decided on.
func sales(t *testing.T, db postgres.DB, ids ...uuid.UUID) map[uuid.UUID]campaign.Sale {
	t.Helper()
	rows, err := db.Query(t.Context(), campaign.SalesSQL, ids)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, campaign.ScanSale)
	if err != nil {
		t.Fatal(err)
	}
	byID := make(map[uuid.UUID]campaign.Sale)
	for _, s := range list {
		byID[s.ID] = s
	}
	return byID
}

// count changes counters and returns how many campaigns that touched.
func count(t *testing.T, tx pgx.Tx, changes ...campaign.Change) (touched int) {
	t.Helper()
	n, err := tryCount(t, tx, changes...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryCount(t *testing.T, tx pgx.Tx, changes ...campaign.Change) (touched int, err error) {
	t.Helper()
	var b pgx.Batch
	campaign.QueueCount(&b, changes).Exec(func(tag pgconn.CommandTag) error {
		touched = int(tag.RowsAffected())
		return nil
	})
	err = tx.SendBatch(t.Context(), &b).Close()
	return touched, err
}

func TestALockedCampaignIsPassedOverUntilItIsLetGo(t *testing.T) {
	t.Parallel()
	db := patientDB(t)
	ids := []uuid.UUID{put(t, db, campaign.Active), put(t, db, campaign.Active), put(t, db, campaign.Pending)}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	backwards := []uuid.UUID{ids[2], uuid.New(), ids[1], ids[0]}
	for name, end := range map[string]func(pgx.Tx) error{
		"commit":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"rollback": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		holder, second := begin(t, db), begin(t, db)
		if err := campaign.Lock(t.Context(), holder, ids[1]); err != nil {
			t.Fatal(err)
		}
		if got := locked(t, second, campaign.LockFreeSQL, backwards...); !slices.Equal(got, []uuid.UUID{ids[0], ids[2]}) {
			t.Errorf("while one is locked: %v of %v", got, ids)
		}
		if err := end(holder); err != nil {
			t.Fatal(err)
		}
		if got := locked(t, second, campaign.LockFreeSQL, backwards...); !slices.Equal(got, ids) {
			t.Errorf("after the %s: %v of %v", name, got, ids)
		}
		third := begin(t, db)
		if got := locked(t, third, campaign.LockFreeSQL, backwards...); len(got) != 0 {
			t.Errorf("what the second has locked was locked again: %v", got)
		}
		if err := second.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// Both ways to wait: the lock, and the lock with the reading behind it in one pipeline.
func TestWhoWaitedForTheLockReadsWhatTheHolderWrote(t *testing.T) {
	t.Parallel()
	db := patientDB(t)
	for name, lock := range map[string]func(tx pgx.Tx, id uuid.UUID) (s campaign.Sale, err error){
		"Lock": func(tx pgx.Tx, id uuid.UUID) (campaign.Sale, error) {
			if err := campaign.Lock(t.Context(), tx, id); err != nil {
				return campaign.Sale{}, err
			}
			return sales(t, tx, id)[id], nil
		},
		"LockAllSQL": func(tx pgx.Tx, id uuid.UUID) (s campaign.Sale, err error) {
			var b pgx.Batch
			b.Queue(campaign.LockAllSQL, []uuid.UUID{id})
			b.Queue(campaign.SalesSQL, []uuid.UUID{id}).Query(func(rows pgx.Rows) (err error) {
				s, err = pgx.CollectExactlyOneRow(rows, campaign.ScanSale)
				return err
			})
			return s, tx.SendBatch(t.Context(), &b).Close()
		},
	} {
		id := put(t, db, campaign.Active)
		holder, waiter := begin(t, db), begin(t, db)
		if err := campaign.Lock(t.Context(), holder, id); err != nil {
			t.Fatal(err)
		}
		if n := count(t, holder, campaign.Change{ID: id, Reserved: 3, Sold: 4}); n != 1 {
			t.Fatalf("%d campaigns counted", n)
		}
		read := make(chan campaign.Sale, 1)
		go func() {
			s, err := lock(waiter, id)
			if err != nil {
				t.Error(err)
			}
			read <- s
		}()
		awaitWaiter(t, db)
		if err := holder.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := <-read; s.Counts != (campaign.Counts{Total: 10, Reserved: 3, Sold: 4}) {
			t.Errorf("%s: the waiter read %+v, older than its wait", name, s)
		}
	}
}

func TestALockOfAnUnknownCampaignIsNotFound(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	if err := campaign.Lock(t.Context(), begin(t, db), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestASaleIsOpenFromItsStartUntilItsEnd(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	for window, open := range map[string]bool{
		"NULL, NULL":                                                 true,
		"now() - interval '1 minute', NULL":                          true,
		"now() + interval '1 minute', NULL":                          false,
		"NULL, now() + interval '1 minute'":                          true,
		"NULL, now() - interval '1 minute'":                          false,
		"now() - interval '1 minute', now() + interval '1 minute'":   true,
		"now() - interval '2 minutes', now() - interval '1 minute'":  false,
		"now() + interval '1 minute', now() + interval '2 minutes'":  false,
		"now() - interval '1 microsecond', now()":                    false, // the clock has moved on since
		"clock_timestamp(), clock_timestamp() + interval '1 minute'": true,
	} {
		id := put(t, db, campaign.Active)
		exec(t, db, `UPDATE campaigns SET (sale_starts_at, sale_ends_at) = (`+window+`) WHERE id = $1`, id)
		if s := sales(t, db, id)[id]; s.Open != open {
			t.Errorf("window %s: open is %v", window, s.Open)
		}
	}
}

func TestASaleIsReadWithAllThatDecidesIt(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, plain := create(t, db, fullDraft()), put(t, db, campaign.Drawing)
	exec(t, db, `UPDATE campaigns SET state = 'active', published_at = now(), paused_at = now(), positions_reserved = 1, positions_sold = 2 WHERE id = $1`, id)
	got := sales(t, db, id, plain, uuid.New())
	want := campaign.Sale{ID: id, State: campaign.Active, Paused: true, BaseLength: 4, Currency: "EUR", PurchaseLimit: got[id].PurchaseLimit,
		Counts: campaign.Counts{Total: 10, Reserved: 1, Sold: 2}}
	if s := got[id]; s != want || s.PurchaseLimit == nil || *s.PurchaseLimit != 3 {
		t.Errorf("got %+v", s)
	}
	if s := got[plain]; len(got) != 2 || s.State != campaign.Drawing || s.Paused || s.PurchaseLimit != nil || s.Counts.Sold != 10 {
		t.Errorf("got %+v", got)
	}
}

func TestCountersAddUpAndNeverPassTheirBounds(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	a, b, untouched := put(t, db, campaign.Active), put(t, db, campaign.Active), put(t, db, campaign.Active)
	for range 2 {
		err := attempt(t, db, func(tx pgx.Tx) error {
			if n := count(t, tx, campaign.Change{ID: a, Reserved: 1, Sold: 2}, campaign.Change{ID: b, Sold: 5}); n != 2 {
				t.Errorf("%d campaigns counted", n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range []campaign.Change{
		{ID: a, Sold: 5}, {ID: a, Reserved: 5}, {ID: a, Reserved: -3}, {ID: a, Sold: -5}, {ID: b, Sold: 1}, {ID: b, Reserved: 1},
		{ID: a, Reserved: 20, Sold: -20},
	} {
		if _, err := tryCount(t, begin(t, db), change); sqlState(err) != "23514" {
			t.Errorf("%+v: %v", change, err)
		}
	}
	want := map[uuid.UUID]campaign.Counts{a: {Total: 10, Reserved: 2, Sold: 4}, b: {Total: 10, Sold: 10}, untouched: {Total: 10}}
	for id, counts := range want {
		if c := get(t, db, id); c.Counts != counts {
			t.Errorf("got %+v, want %+v", c.Counts, counts)
		}
	}
}
