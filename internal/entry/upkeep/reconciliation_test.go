package upkeep_test

import (
	"context"
	"testing"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/entry/upkeep"
	"triprize/internal/payment/reconciliation"
)

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
	p := newSetup(t)
	if got := p.sweep("reconciliation"); got["days"] != 0 {
		t.Errorf("without a provider: %v", got)
	}
	list := &moves{}
	p.with(upkeep.Options{Provider: list})
	if got := p.sweep("reconciliation"); got["days"] != 0 || len(list.days) != 0 {
		t.Errorf("of a day that is not closed: %v", got)
	}
	if _, err := reconciliation.Installation(t.Context(), p.db); err != nil {
		t.Fatal(err)
	}
	p.exec(`UPDATE installation SET created_at = date_trunc('day', clock_timestamp(), 'UTC') - interval '4 days' + interval '1 hour'`)
	for n := range 2 {
		if report, err := p.run("reconciliation"); err != nil || report.Counts["days"] != 1 || report.Counts["listed"] != 1 || !report.More {
			t.Errorf("%d: %+v, %v", n, report, err)
		}
	}
	if report, err := p.run("reconciliation"); err != nil || report.Counts["days"] != 0 || report.More || len(list.days) != 2 {
		t.Errorf("with nothing left: %+v, %v, %v", report, err, list.days)
	}
	first := list.days[0]
	if want := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -4); !first.Equal(want) && !first.Equal(want.AddDate(0, 0, -1)) || !list.days[1].Equal(first.AddDate(0, 0, 1)) {
		t.Errorf("listed %v", list.days)
	}
}
