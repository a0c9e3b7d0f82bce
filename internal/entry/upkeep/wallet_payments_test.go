package upkeep_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/audit"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Damages to what wallets paid: alice has a completed purchase, bob a cancelled
// one, and carol has money.
var paidDamages = map[string]string{
	"a payment is gone":                    `DELETE FROM ledger_entries WHERE kind = 'purchase' AND debit_wallet = (SELECT id FROM wallets WHERE owner_id = 'alice')`,
	"a cancelled one was never paid":       `DELETE FROM ledger_entries WHERE kind = 'purchase' AND debit_wallet = (SELECT id FROM wallets WHERE owner_id = 'bob')`,
	"a refund is gone":                     `DELETE FROM ledger_entries WHERE kind = 'refund'`,
	"a payment is too small":               `UPDATE ledger_entries SET amount = amount - 1 WHERE kind = 'purchase'`,
	"a refund is too large":                `UPDATE ledger_entries SET amount = amount + 1 WHERE kind = 'refund'`,
	"in another currency":                  `UPDATE ledger_entries SET currency = 'EUR' WHERE kind = 'refund'`,
	"somebody else paid":                   `UPDATE ledger_entries SET debit_wallet = (SELECT id FROM wallets WHERE owner_id = 'carol') WHERE kind = 'purchase'`,
	"somebody else got it back":            `UPDATE ledger_entries SET credit_wallet = (SELECT id FROM wallets WHERE owner_id = 'carol') WHERE kind = 'refund'`,
	"under another name":                   `UPDATE ledger_entries SET reference = 'order-' || id WHERE kind = 'purchase'`,
	"under a client's name":                `UPDATE ledger_entries SET scope = 'shop' WHERE kind = 'refund'`,
	"paid twice":                           `WITH e AS (INSERT INTO ledger_entries (id, kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency, scope, reference, purchase_id, actor) SELECT gen_random_uuid(), kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency, 'shop', reference, purchase_id, actor FROM ledger_entries WHERE kind = 'purchase' RETURNING *) ` + eventsSQL,
	"an entry is of another purchase":      `UPDATE ledger_entries SET purchase_id = gen_random_uuid() WHERE kind = 'refund'`,
	"given back though it was kept":        `UPDATE purchases SET state = 'completed', cancelled_at = NULL, cancelled_by = NULL, cancel_reason = NULL WHERE state = 'cancelled'`,
	"cancelled and not given back":         `UPDATE purchases SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'app:shop' WHERE user_id = 'alice'`,
	"failed and paid":                      `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE state = 'completed'`,
	"an app says it has the money":         `UPDATE purchases SET payment_method = 'external' WHERE user_id = 'alice'`,
	"a wallet is said to have paid":        `UPDATE purchases SET payment_method = 'wallet' WHERE user_id = 'dora'`,
	"of another job":                       `UPDATE purchases SET job_id = gen_random_uuid() WHERE user_id = 'alice'`,
	"a purchase is gone":                   `DELETE FROM purchases WHERE user_id = 'alice'`,
	"a purchase names another payment":     `UPDATE purchases SET payment_reference = gen_random_uuid()::text WHERE user_id = 'alice'`,
	"the wallet that paid is somebody's":   `UPDATE wallets SET owner_id = 'eve' WHERE owner_id = 'alice'`,
	"the wallet that paid is not there":    `DELETE FROM wallets WHERE owner_id = 'alice'`,
	"a payment for a purchase of no one's": `WITH e AS (INSERT INTO ledger_entries (id, kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency, scope, reference, purchase_id, actor) SELECT gen_random_uuid(), 'purchase', id, NULL, NULL, 'sales', 5, currency, '', 'purchase:none', gen_random_uuid(), 'app:shop' FROM wallets WHERE owner_id = 'carol' RETURNING *) ` + eventsSQL,
}

const eventsSQL = `INSERT INTO wallet_events SELECT debit_wallet, 1000, id, -amount, 0 FROM e`

func TestTheAuditFindsWhatIsWrongWithWhatWalletsPaid(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign, seller := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Seller(db)
	for _, user := range []string{"alice", "bob", "carol"} {
		fixture.Wallet(t, db, user, 1000)
	}
	fixture.Buy(t, db, campaign, "dora", 4, 1)
	refs := fixture.Accept(t, db, fixture.WalletRequest(t, campaign, "alice", 2, 2), fixture.WalletRequest(t, campaign, "bob", 3, 1))
	if report, err := seller.Sell(t.Context(), refs, sale.WaitForCampaign); err != nil || report.Sold != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
	bought := servers.Value[uuid.UUID](t, db, `SELECT id FROM purchases WHERE user_id = 'bob'`)
	if report, err := seller.Cancel(t.Context(), fixture.Accept(t, db, fixture.CancelRequest(t, campaign, bought)), sale.WaitForCampaign); err != nil || len(report.Finalized) != 1 || report.Finalized[0].Problem != nil {
		t.Fatalf("%+v, %v", report, err)
	}
	fixture.Sound(t, db)
	for name, sql := range paidDamages {
		t.Run(name, func(t *testing.T) { damagePaid(t, db, sql) })
	}
}

// damagePaid does a damage that the audit must find, and undoes it.
func damagePaid(t *testing.T, db *pgxpool.Pool, sql string) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `ALTER TABLE ledger_entries DISABLE TRIGGER USER`)
	if tag, err := tx.Exec(t.Context(), sql); err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%d rows, %v", tag.RowsAffected(), err)
	}
	violations, err := checkIn(t.Context(), tx)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(violations, func(v audit.Violation) bool { return strings.Contains(v.Invariant, "paid for a purchase") }) {
		t.Errorf("found %v", violations)
	}
}
