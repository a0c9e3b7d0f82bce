package reconciliation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/sweep"
	"triprize/internal/testkit/servers"
)

const retention = 450 * 24 * time.Hour

// moves are what a provider's balance has of each day: one fee.
type moves struct {
	payprovider.Provider
	days []time.Time
}

func (m *moves) ListBalanceTransactions(_ context.Context, from, _ time.Time, yield func(payprovider.BalanceTransaction) error) error {
	m.days = append(m.days, from)
	return yield(payprovider.BalanceTransaction{ID: "txn_" + from.Format(time.DateOnly), Type: "stripe_fee", Category: "fee", Known: true, Amount: -30, Currency: "JPY",
		Net: -30, CreatedAt: from.Add(time.Hour), AvailableOn: from})
}

func TestEachClosedDayIsReconciledOnce(t *testing.T) {
	t.Parallel()
	db, list := servers.DB(t), &moves{}
	run := func(provider payprovider.Provider) (sweep.Counts, error) {
		counts := make(sweep.Counts)
		return counts, reconciliation.New(db, provider, retention, servers.Logger(t)).Sweep().Run(t.Context(), sweep.Run{Counts: counts})
	}
	if got, err := run(nil); got["days"] != 0 || err != nil {
		t.Errorf("without a provider: %v, %v", got, err)
	}
	if got, err := run(list); got["days"] != 0 || len(list.days) != 0 || err != nil {
		t.Errorf("of a day that is not closed: %v, %v", got, err)
	}
	if _, err := reconciliation.Installation(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	servers.Exec(t, db, `UPDATE installation SET created_at = date_trunc('day', clock_timestamp(), 'UTC') - interval '4 days' + interval '1 hour'`)
	for n := range 2 {
		if got, err := run(list); !errors.Is(err, sweep.ErrMore) || got["days"] != 1 || got["listed"] != 1 {
			t.Errorf("%d: %v, %v", n, got, err)
		}
	}
	if got, err := run(list); err != nil || got["days"] != 0 || len(list.days) != 2 {
		t.Errorf("with nothing left: %v, %v, %v", got, err, list.days)
	}
	first := list.days[0]
	if want := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -4); !first.Equal(want) && !first.Equal(want.AddDate(0, 0, -1)) || !list.days[1].Equal(first.AddDate(0, 0, 1)) {
		t.Errorf("listed %v", list.days)
	}
}
func TestOldBalanceTransactionsAreDeletedAndWhatStandsStays(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	run := func() {
		_, _, err := reconciliation.DeleteOld(t.Context(), db, retention, nil, 100)
		servers.NoError(t, err)
	}
	servers.Exec(t, db, `INSERT INTO balance_transactions (id, day, type, reporting_category, known, amount, currency, fee, net, created_at, available_on)
		SELECT 'txn_' || n, current_date - n, 'stripe_fee', 'fee', true, 1, 'JPY', 0, 1, now(), now() FROM generate_series(440, 460) n`)
	servers.Exec(t, db, `INSERT INTO reconciled_days (day, lease_until, listed_until, done_at) SELECT current_date - n, now(), now(), now() FROM generate_series(440, 460) n`)
	servers.Exec(t, db, `INSERT INTO payment_discrepancies (id, kind, object_id, detail, found_at, closed_at, explained_by, explanation, explained_at)
		VALUES (gen_random_uuid(), 'differs', 'closed', '', now() - interval '451 days', now(), NULL, NULL, NULL),
		       (gen_random_uuid(), 'differs', 'explained', '', now() - interval '451 days', NULL, 'o', 'r', now()),
		       (gen_random_uuid(), 'differs', 'open', '', now() - interval '451 days', NULL, NULL, NULL, NULL),
		       (gen_random_uuid(), 'differs', 'new', '', now() - interval '449 days', now(), NULL, NULL, NULL)`)
	for range 2 { // the days follow their transactions
		run()
	}
	var transactions, days int
	var differences string
	err := db.QueryRow(t.Context(), `
		SELECT (SELECT count(*) FROM balance_transactions), (SELECT count(*) FROM reconciled_days), (SELECT string_agg(object_id, ' ' ORDER BY object_id) FROM payment_discrepancies)`).
		Scan(&transactions, &days, &differences)
	if err != nil || transactions < 10 || transactions > 12 || days != transactions || differences != "new open" {
		t.Errorf("%d transactions, %d days, %s, %v", transactions, days, differences, err)
	}
	servers.Exec(t, db, `UPDATE reconciled_days SET day = day - 1000`)
	servers.Exec(t, db, `DELETE FROM balance_transactions`)
	run()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM reconciled_days`).Scan(&days); err != nil || days != 1 {
		t.Errorf("%d days, %v: the newest one tells where to go on", days, err)
	}
}
