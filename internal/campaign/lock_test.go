package campaign_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// locked locks campaigns in one of the modes, and returns those that it got, in order.
func locked(t *testing.T, tx pgx.Tx, mode postgres.LockMode, ids ...uuid.UUID) (got []uuid.UUID) {
	t.Helper()
	var b pgx.Batch
	campaign.QueueLock(&b, ids, mode, func(id uuid.UUID) { got = append(got, id) })
	servers.NoError(t, tx.SendBatch(t.Context(), &b).Close())
	return got
}

// statuses reads what purchases and holds are decided on.
func statuses(t *testing.T, db postgres.DB, ids ...uuid.UUID) map[uuid.UUID]*campaign.Snapshot {
	t.Helper()
	var b pgx.Batch
	found := make(map[uuid.UUID]*campaign.Snapshot)
	campaign.QueueSnapshots(&b, ids, found)
	servers.NoError(t, db.SendBatch(t.Context(), &b).Close())
	return found
}

// count changes counters.
func count(t *testing.T, tx pgx.Tx, changes campaign.Changes) error {
	t.Helper()
	var b pgx.Batch
	changes.Queue(&b)
	return tx.SendBatch(t.Context(), &b).Close()
}

func TestALockedCampaignIsPassedOverUntilItIsLetGo(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ids := []uuid.UUID{put(t, db, campaign.Active), put(t, db, campaign.Active), put(t, db, campaign.Pending)}
	slices.SortFunc(ids, uuidv7.Compare)
	backwards := []uuid.UUID{ids[2], uuid.New(), ids[1], ids[0]}
	for name, end := range map[string]func(pgx.Tx) error{
		"commit":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"rollback": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		holder, second := begin(t, db), begin(t, db)
		servers.NoError(t, campaign.Lock(t.Context(), holder, ids[1]))
		if got := locked(t, second, postgres.SkipLocked, backwards...); !slices.Equal(got, []uuid.UUID{ids[0], ids[2]}) {
			t.Errorf("while one is locked: %v of %v", got, ids)
		}
		servers.NoError(t, end(holder))
		if got := locked(t, second, postgres.SkipLocked, backwards...); !slices.Equal(got, ids) {
			t.Errorf("after the %s: %v of %v", name, got, ids)
		}
		third := begin(t, db)
		if got := locked(t, third, postgres.SkipLocked, backwards...); len(got) != 0 {
			t.Errorf("what the second has locked was locked again: %v", got)
		}
		servers.NoError(t, second.Rollback(t.Context()))
	}
}

// Both ways to wait: the lock, and the lock with the reading behind it in one pipeline.
func TestALockThatWasWaitedForShowsWhatItsHolderWrote(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, lock := range map[string]func(tx pgx.Tx, id uuid.UUID) (campaign.Snapshot, error){
		"Lock": func(tx pgx.Tx, id uuid.UUID) (campaign.Snapshot, error) {
			if err := campaign.Lock(t.Context(), tx, id); err != nil {
				return campaign.Snapshot{}, err
			}
			return *statuses(t, tx, id)[id], nil
		},
		"QueueLock": func(tx pgx.Tx, id uuid.UUID) (campaign.Snapshot, error) {
			var b pgx.Batch
			found := make(map[uuid.UUID]*campaign.Snapshot)
			campaign.QueueLock(&b, []uuid.UUID{id}, postgres.WaitForLocks, func(uuid.UUID) {})
			campaign.QueueSnapshots(&b, []uuid.UUID{id}, found)
			err := tx.SendBatch(t.Context(), &b).Close()
			return *found[id], err
		},
	} {
		id := put(t, db, campaign.Active)
		holder, waiter := begin(t, db), begin(t, db)
		servers.NoError(t, campaign.Lock(t.Context(), holder, id))
		servers.NoError(t, count(t, holder, campaign.Changes{id: {Reserved: 3, Sold: 4}}))
		var read campaign.Snapshot
		if err := behind(t, db, holder, true, func() (err error) { read, err = lock(waiter, id); return err }); err != nil || read.Counts != (campaign.Counts{Total: 10, Reserved: 3, Sold: 4}) {
			t.Errorf("%s: the waiter read %+v, older than its wait; %v", name, read, err)
		}
	}
}

func TestASaleIsOpenFromItsStartUntilItsEnd(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
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
		if s := statuses(t, db, id)[id]; s.Open != open {
			t.Errorf("window %s: open is %v", window, s.Open)
		}
	}
}

func TestCountersAddUpAndNeverPassTheirBounds(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	a, b, untouched, ended := put(t, db, campaign.Active), put(t, db, campaign.Active), put(t, db, campaign.Active), put(t, db, campaign.Completed)
	for board := range int64(2) {
		changes := make(campaign.Changes)
		changes.Add(a, campaign.Counts{Reserved: 1, Sold: 3, Board: board + 1})
		changes.Add(a, campaign.Counts{Sold: -1})
		changes.Add(b, campaign.Counts{Sold: 5})
		servers.NoError(t, attempt(t, db, func(tx pgx.Tx) error { return count(t, tx, changes) }))
	}
	for _, changes := range []campaign.Changes{
		{a: {Sold: 5}}, {a: {Reserved: 5}}, {a: {Reserved: -3}}, {a: {Sold: -5}}, {b: {Sold: 1}}, {b: {Reserved: 1}},
		{a: {Reserved: 20, Sold: -20}},
	} {
		if err := count(t, begin(t, db), changes); sqlState(err) != "23514" {
			t.Errorf("%+v: %v", changes, err)
		}
	}
	for _, changes := range []campaign.Changes{{a: {}, uuid.New(): {}}, {a: {}, ended: {Sold: -1}}, {a: {Board: 2}}, {a: {Board: 4}}} {
		if err := attempt(t, db, func(tx pgx.Tx) error { return count(t, tx, changes) }); !errors.Is(err, postgres.ErrRows) {
			t.Errorf("%+v, with one that is not active, or another board: %v", changes, err)
		}
	}
	want := map[uuid.UUID]campaign.Counts{a: {Total: 10, Reserved: 2, Sold: 4}, b: {Total: 10, Sold: 10}, untouched: {Total: 10}}
	for id, counts := range want {
		if c := get(t, db, id); c.Counts != counts || c.Counts.Available() != 10-counts.Reserved-counts.Sold {
			t.Errorf("got %+v, want %+v", c.Counts, counts)
		}
	}
}
