package upkeep_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/sweep"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/trail"
	"triprize/internal/wallet"
	"triprize/internal/webhook"
	"triprize/sandbox/drandsim"
)

// A damage is a statement, and a part of the check, name or subject of the violation that the audit must find
// after it. Its $1 is what the scene has made under the name of.
type damage struct{ of, finds, sql string }

// scenes are sound databases, and what is done to each of them, one damage at a time.
var scenes = map[string]struct {
	make    func(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID
	damages []damage
}{
	"a campaign on sale":      {onSale, onSaleDamages},
	"the layers of campaigns": {layers, layerDamages},
	"purchases by card":       {cardBuyers, cardDamages},
	"what wallets paid":       {payers, paidDamages},
	"wallets":                 {rich, ledgerDamages},
	"webhooks":                {told, webhookDamages},
	"freezes and draws":       {drawn, drawDamages},
	"cancelled purchases":     {cancelled, cancelledDamages},
	"a cancelled campaign":    {calledOff, calledOffDamages},
	"the audit trail":         {sealed, sealedDamages},
}

// No trigger refuses a damage here. Both the audit of all rows and the walks over parts find it. Together
// the damages break each invariant.
func TestTheAuditFindsEveryViolation(t *testing.T) {
	t.Parallel()
	var broken sync.Map
	var played atomic.Int64
	t.Run("after", func(t *testing.T) {
		for name, s := range scenes {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				played.Add(1)
				db := servers.DB(t)
				ids := s.make(t, db)
				fixture.Sound(t, db)
				for _, d := range s.damages {
					found := foundAfter(t, db, d.sql, ids[d.of])
					for _, v := range found {
						broken.Store(v.Check, true)
					}
					if !slices.ContainsFunc(found, func(v audit.Violation) bool {
						return strings.Contains(v.Check+": "+v.Invariant+": "+v.Subject, d.finds)
					}) {
						t.Errorf("%s\nwant %q, found %v", d.sql, d.finds, found)
					}
				}
				fixture.Sound(t, db)
			})
		}
	})
	for _, i := range upkeep.Invariants {
		if _, ok := broken.Load(i.Check); !ok && int(played.Load()) == len(scenes) {
			t.Errorf("no damage breaks %s", i.Check)
		}
	}
}

// foundAfter returns what the audit finds after a statement, and takes that back.
func foundAfter(t *testing.T, db *pgxpool.Pool, sql string, id uuid.UUID) []audit.Violation {
	t.Helper()
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	servers.Exec(t, tx, `SET LOCAL session_replication_role = replica`)
	var args []any
	if strings.Contains(sql, "$1") {
		args = append(args, id)
	}
	if tag, err := tx.Exec(t.Context(), sql, args...); err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("%s: %d rows, %v", sql, tag.RowsAffected(), err)
	}
	servers.Exec(t, tx, `SET LOCAL session_replication_role = origin`)
	whole, err := audit.CheckIn(t.Context(), tx, upkeep.Invariants, 10)
	servers.NoError(t, err)
	parts, err := inParts(t.Context(), tx, 1000)
	servers.NoError(t, err)
	return slices.DeleteFunc(whole, func(v audit.Violation) bool { return !parts[v.Check] })
}

// inParts walks over everything once, with so many ids in a part at most, and returns the invariants
// that are broken.
func inParts(ctx context.Context, tx pgx.Tx, size int) (broken map[string]bool, err error) {
	broken = make(map[string]bool)
	for _, w := range upkeep.Walks {
		for after, more := uuid.Nil, true; more; {
			ids, err := postgres.Collect(ctx, tx, pgx.RowTo[uuid.UUID], w.Next, after)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.Name, err)
			}
			if more = len(ids) > 0; !more {
				break
			}
			for part := range slices.Chunk(ids, size) {
				for _, i := range w.Invariants {
					subjects, err := i.Broken(ctx, tx, i.Among(w.Parts), 10, part)
					if err != nil {
						return nil, fmt.Errorf("%s: %w", w.Name, err)
					}
					broken[i.Check] = broken[i.Check] || len(subjects) > 0
				}
			}
			after = ids[len(ids)-1]
		}
	}
	return broken, nil
}

// Mina has two positions, Nora one, and Otto holds one.
var onSaleDamages = []damage{
	{"", "board_versions", `UPDATE positions SET board_version = 1000 WHERE campaign_id = $1 AND (layer, col) = (4, 1)`},
	{"", "draw_times", `UPDATE campaigns SET sale_ends_at = now(), draws_at = now() WHERE id = $1`},
	{"", "drawing_campaigns", `UPDATE campaigns SET state = 'drawing', draw_started_at = now() WHERE id = $1`},
	{"", "held_positions", `UPDATE holds SET user_id = 'nobody' WHERE campaign_id = $1`},
	{"", "lost_campaigns", `UPDATE holds SET campaign_id = gen_random_uuid() WHERE campaign_id = $1`},
	{"", "purchase_limits", `UPDATE campaigns SET purchase_limit = 1 WHERE id = $1`},
	{"", "used_holds", `UPDATE holds SET state = 'used', purchase_id = gen_random_uuid(), ended_at = now() WHERE campaign_id = $1`},
	{"", "oversold", `
		UPDATE purchase_items i SET layer = m.layer, col = m.col
		FROM purchases n, purchases p JOIN purchase_items m ON m.purchase_id = p.id
		WHERE n.campaign_id = $1 AND n.user_id = 'nora' AND i.purchase_id = n.id AND p.campaign_id = $1 AND p.user_id = 'mina'`},
}

func onSale(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	id := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Buy(t, db, id, "mina", 0, 2)
	fixture.Buy(t, db, id, "nora", 0, 1)
	fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldAnyRequest(id, "otto", 0, 1))
	return map[string]uuid.UUID{"": id}
}

const (
	together = "as many positions as its layers together"
	asRules  = "in the columns 1 to their number, as the rules say"
)

var layerDamages = []damage{
	{"", together, `UPDATE layers SET first_number = 6 WHERE campaign_id = $1 AND layer = 2`},
	{"", together, `UPDATE layers SET positions = 5 WHERE campaign_id = $1 AND layer = 1`},
	{"", asRules, `UPDATE layers SET positions = 5, first_number = 1 WHERE campaign_id = $1 AND layer = 1`},
	{"", asRules, `UPDATE positions SET col = 5 WHERE campaign_id = $1 AND layer = 1 AND col = 4`},
	{"", asRules, `UPDATE positions SET layer = 2, col = 3 WHERE campaign_id = $1 AND layer = 1 AND col = 4`},
	{"", asRules, `DELETE FROM positions WHERE campaign_id = $1 AND layer = 2`},
}

func layers(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	d := fixture.Draft(3)
	d.BaseLength, d.Layers = 0, []campaign.Layer{{Layer: 1, Positions: 4, Price: 100}, {Layer: 2, Positions: 2, Price: 200}}
	id := fixture.Campaign(t, db, d)
	fixture.Campaign(t, db, fixture.Draft(3))
	return map[string]uuid.UUID{"": id}
}

// The buyers by card are: open, whose payment goes on; action, who must act; taken, whose cancellation
// waits; late; done, who has bought; part, who has given a part back; back, who is refunded after that; returned, whose
// money came too late; failed.
var cardDamages = []damage{
	{"open", hasPayment, `DELETE FROM payments WHERE purchase_id = $1`},
	{"open", hasPayment, `UPDATE payments SET amount = amount + 1 WHERE purchase_id = $1`},
	{"open", hasPayment, `UPDATE payments SET currency = 'EUR' WHERE purchase_id = $1`},
	{"open", hasPayment, `UPDATE payments SET campaign_id = gen_random_uuid() WHERE purchase_id = $1`},
	{"done", hasPayment, `UPDATE purchases SET payment_method = 'external' WHERE id = $1`},
	{"failed", hasPayment, `DELETE FROM purchases WHERE id = $1`},
	{"open", "a purchase that waits for its payment is paid by card", `UPDATE purchases SET payment_method = 'wallet' WHERE id = $1`},

	{"open", keeps, `UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, expires_at = NULL WHERE purchase_id = $1`},
	{"open", keeps, `UPDATE purchase_items SET layer = 4, col = CASE WHEN layer = 4 THEN col % 4 + 1 ELSE col END WHERE purchase_id = $1`},
	{"failed", keeps, `UPDATE positions SET state = 'reserved', user_id = 'failed', purchase_id = $1, expires_at = now() WHERE (campaign_id, layer, col) = (SELECT campaign_id, layer, col FROM positions WHERE state = 'available' LIMIT 1)`},
	{"late", keeps, `DELETE FROM payment_steps WHERE purchase_id = $1 AND event = 'released'`},
	{"open", keeps, `INSERT INTO payment_steps (purchase_id, event) VALUES ($1, 'released')`},
	{"failed", "a reserved position belongs to an open payment", `UPDATE positions SET state = 'reserved', user_id = 'x', purchase_id = $1, expires_at = now() WHERE (campaign_id, layer, col) = (SELECT campaign_id, layer, col FROM positions WHERE state = 'available' LIMIT 1)`},
	{"open", "a reserved position belongs to an open payment", `DELETE FROM payments WHERE purchase_id = $1`},
	{"open", "a reserved position belongs to an open purchase of its owner", `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE id = $1`},

	{"open", isWhat, `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE id = $1`},
	{"done", isWhat, `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE id = $1`},
	{"done", isWhat, `UPDATE payments SET phase = 'refund_due' WHERE purchase_id = $1`},
	{"done", isWhat, `UPDATE payments SET phase = 'captured', finished_at = NULL WHERE purchase_id = $1`},
	{"returned", isWhat, `UPDATE purchases SET state = 'failed' WHERE id = $1`},
	{"returned", isWhat, `UPDATE purchases SET completed_at = now() WHERE id = $1`},
	{"failed", isWhat, `UPDATE purchases SET state = 'pending', failure = NULL WHERE id = $1`},
	{"late", isWhat, `UPDATE purchases SET completed_at = now() WHERE id = $1`},

	{"action", saysHow, `UPDATE payments SET next_action = NULL WHERE purchase_id = $1`},
	{"action", saysHow, `UPDATE jobs SET progress = NULL WHERE purchase_id = $1`},
	{"action", saysHow, `UPDATE jobs SET state = 'queued' WHERE purchase_id = $1`},
	{"action", saysHow, `UPDATE purchases SET state = 'pending' WHERE id = $1`},
	{"declined", saysHow, `UPDATE jobs SET progress = NULL WHERE purchase_id = $1`},
	{"declined", saysHow, `UPDATE purchases SET state = 'pending' WHERE id = $1`},
	{"open", saysHow, `UPDATE purchases SET state = 'awaiting_action' WHERE id = $1`},
	{"action", "only a job whose payment is open waits for a buyer", `UPDATE payments SET phase = 'cancelled', ending = 'expired', finished_at = now() WHERE purchase_id = $1`},
	{"action", "only a job whose payment is open waits for a buyer", `DELETE FROM payments WHERE purchase_id = $1`},

	{"open", itsJob, `UPDATE jobs SET purchase_id = gen_random_uuid() WHERE purchase_id = $1`},
	{"open", itsJob, `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE purchase_id = $1`},
	{"done", itsJob, `UPDATE jobs SET state = 'failed', result = NULL, problem = '{}' WHERE purchase_id = $1`},
	{"failed", itsJob, `UPDATE jobs SET state = 'queued', problem = NULL, finished_at = NULL WHERE purchase_id = $1`},
	{"returned", itsJob, `UPDATE jobs SET state = 'succeeded', problem = NULL, result = '{}' WHERE purchase_id = $1`},
	{"open", "a purchase that waits for its payment has its job", `DELETE FROM jobs WHERE purchase_id = $1`},
	{"done", "a purchase job that failed or is open has sold nothing", `UPDATE jobs SET state = 'failed', result = NULL, problem = '{}' WHERE purchase_id = $1`},
	{"failed", "a purchase job that failed or is open has sold nothing", `UPDATE jobs SET state = 'queued', problem = NULL, finished_at = NULL WHERE purchase_id = $1`},
	{"open", "a purchase job that failed or is open has sold nothing", `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE purchase_id = $1`},
	{"failed", "a queued job is in the outbox, or its payment goes on", `WITH gone AS (DELETE FROM outbox_messages) UPDATE jobs SET accepted_at = now() - interval '1 hour', state = 'queued', problem = NULL, finished_at = NULL WHERE purchase_id = $1`},

	{"taken", waits, `UPDATE payments SET cancel_job = gen_random_uuid() WHERE purchase_id = $1`},
	{"taken", waits, `UPDATE payments SET cancel_job = NULL WHERE purchase_id = $1`},
	{"taken", waits, `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE purchase_id = $1 AND kind = 'cancellation'`},
	{"taken", waits, `UPDATE jobs SET purchase_id = NULL WHERE purchase_id = $1 AND kind = 'cancellation'`},
	{"taken", waits, `UPDATE jobs SET payload = '{"purchase_id": "x"}' WHERE purchase_id = $1 AND kind = 'cancellation'`},
	{"taken", "a payment whose buyer took it back is given up or captured", `UPDATE payments SET phase = 'action', next_action = 'x', intent_id = 'pi' WHERE purchase_id = $1`},

	{"back", refunded, `DELETE FROM refunds WHERE purchase_id = $1`},
	{"back", addsUp, `UPDATE refunds SET amount = amount - 1 WHERE purchase_id = $1`},
	{"back", addsUp, `WITH p AS (UPDATE purchases SET state = 'refunded' WHERE id = $1) UPDATE refunds SET amount = 0, state = 'succeeded', finished_at = now() WHERE purchase_id = $1`},
	{"back", addsUp, outOfBandSQL + `, amount + 1, 'succeeded', now() FROM purchases WHERE id = $1`},
	{"done", addsUp, outOfBandSQL + `, amount + 1, 'pending', NULL FROM purchases WHERE id = $1`},
	{"back", addsUp, `WITH w AS (UPDATE refunds SET state = 'pending', amount = amount - 1 WHERE purchase_id = $1) ` + outOfBandSQL + `, 1, 'failed', NULL FROM purchases WHERE id = $1`},
	{"failed", "only captured money is refunded by card", outOfBandSQL + `, 1, 'succeeded', now() FROM purchases WHERE id = $1`},
	{"back", refunded, `UPDATE refunds SET currency = 'EUR' WHERE purchase_id = $1`},
	{"back", refunded, `UPDATE refunds SET user_id = 'x' WHERE purchase_id = $1`},
	{"returned", refunded, `UPDATE refunds SET campaign_id = gen_random_uuid() WHERE purchase_id = $1`},
	{"back", refunded, `UPDATE purchases SET state = 'completed', cancelled_at = NULL, cancelled_by = NULL, cancel_reason = NULL WHERE id = $1`},
	{"failed", refunded, refundSQL},
	{"done", refunded, refundSQL},
	{"back", "a purchase is refunded when its refunds are finished, and not before", `UPDATE refunds SET state = 'succeeded', finished_at = now() WHERE purchase_id = $1`},
	{"back", "a purchase is refunded when its refunds are finished, and not before", `UPDATE purchases SET state = 'refunded' WHERE id = $1`},
	{"failed", "only captured money is refunded by card", refundSQL},
	{"back", "only captured money is refunded by card", `UPDATE payments SET phase = 'cancelled', ending = 'expired' WHERE purchase_id = $1`},
	{"back", "only captured money is refunded by card", `DELETE FROM payments WHERE purchase_id = $1`},

	{"part", addsUp, `UPDATE refunds SET amount = amount - 1 WHERE purchase_id = $1`},
	{"part", addsUp, `UPDATE refunds SET amount = amount + 1 WHERE purchase_id = $1`},
	{"part", refunded, `DELETE FROM refunds WHERE purchase_id = $1`},
	{"part", refunded, `UPDATE purchases SET partial_cancellations = NULL WHERE id = $1`},

	{"open", "an open payment and an open card refund are due sometime", `UPDATE payments SET due_at = NULL WHERE purchase_id = $1`},
	{"back", "an open payment and an open card refund are due sometime", `UPDATE refunds SET due_at = NULL WHERE purchase_id = $1`},
	{"open", "the counters of a campaign equal its rows", `UPDATE campaigns SET positions_reserved = positions_reserved - 1 WHERE id = (SELECT campaign_id FROM purchases WHERE id = $1)`},
	{"back", "a succeeded cancellation job has cancelled the purchase it was about, or positions of it", `UPDATE purchases SET cancelled_at = NULL, cancelled_by = NULL WHERE id = $1`},
}

const (
	hasPayment = "a purchase by card has its payment, and no other purchase has one"
	keeps      = "an open payment keeps the positions of its purchase until they are released, and a finished one keeps none"
	isWhat     = "a purchase is what its payment has made of it"
	saysHow    = "a purchase that waits for its buyer says how to go on, and so does its job"
	itsJob     = "the job of a payment is open as long as its purchase, and ends with it"
	waits      = "a cancellation waits for the open payment that ends with it, and for no other"
	refunded   = "a card purchase that is given back, in whole or in part, has refunds of ours to its buyer, and no other has one"
	addsUp     = "what a card has paid is kept, given back by us, or given back out of band"

	outOfBandSQL = `
		INSERT INTO refunds (id, purchase_id, campaign_id, user_id, method, currency, reason, provider_id, amount, state, finished_at)
		SELECT gen_random_uuid(), id, campaign_id, user_id, 'card', currency, 'out-of-band', 're_hand'`
	refundSQL = `
		INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, due_at)
		SELECT gen_random_uuid(), id, 1, campaign_id, user_id, 'card', amount, currency, 'cancelled', 'open', now() FROM purchases WHERE id = $1`
)

func cardBuyers(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	campaign, bought, jobs := fixture.Campaign(t, db, fixture.Draft(8)), make(map[string]uuid.UUID), make(map[string]job.Ref)
	for _, buyer := range []string{"open", "action", "declined", "taken", "late", "returned", "failed"} {
		bought[buyer], jobs[buyer] = fixture.Reserve(t, db, campaign, buyer, 1, time.Hour)
	}
	bought["done"], _ = fixture.BuyByCard(t, db, campaign, "done", 0, 1)
	bought["back"], _ = fixture.BuyByCard(t, db, campaign, "back", 0, 1)
	bought["part"], _ = fixture.BuyByCard(t, db, campaign, "part", 8, 2)
	p, err := purchase.Get(t.Context(), db, access.Everything(), bought["part"])
	servers.NoError(t, err)
	fixture.Advance(t, db, bought["action"], payment.Action)
	fixture.Advance(t, db, bought["declined"], payment.CardDeclined)
	for _, buyer := range []string{"late", "returned"} {
		fixture.Advance(t, db, bought[buyer], payment.Processing)
		fixture.Advance(t, db, bought[buyer], payment.Expiring)
		servers.Exec(t, db, `UPDATE payments SET uncancellable = true, deadline = clock_timestamp() WHERE purchase_id = $1`, bought[buyer])
		fixture.SettlePayments(t, db, jobs[buyer])
	}
	fixture.Advance(t, db, bought["returned"], payment.Captured)
	fixture.EndAs(t, db, bought["failed"], payment.Declined)
	fixture.SettlePayments(t, db, jobs["returned"], jobs["failed"])
	backs := fixture.Accept(t, db, fixture.CancelRequest(t, campaign, bought["taken"]), fixture.CancelRequest(t, campaign, bought["back"]),
		fixture.CancelRequestOf(t, campaign, sale.Cancellation{PurchaseID: p.ID, Positions: []shape.Position{p.Items[0].Position}, By: "app:test"}))
	if _, err := fixture.Seller(db).Cancel(t.Context(), backs, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	return bought
}

const paidFor = "paid for a purchase"

// alice has a completed purchase, bob a cancelled one, carol has money, and dora has bought something externally.
var paidDamages = []damage{
	{"", paidFor, `DELETE FROM ledger_entries WHERE kind = 'purchase' AND debit_wallet = (SELECT id FROM wallets WHERE owner_id = 'alice')`}, // a payment is gone
	{"", paidFor, `DELETE FROM ledger_entries WHERE kind = 'purchase' AND debit_wallet = (SELECT id FROM wallets WHERE owner_id = 'bob')`},   // a cancelled one was never paid
	{"", paidFor, `DELETE FROM ledger_entries WHERE kind = 'refund'`},                                                                        // a refund is gone
	{"", paidFor, `UPDATE ledger_entries SET amount = amount - 1 WHERE kind = 'purchase'`},                                                   // a payment is too small
	{"", paidFor, `UPDATE ledger_entries SET amount = amount + 1 WHERE kind = 'refund'`},                                                     // a refund is too large
	{"", paidFor, `UPDATE ledger_entries SET currency = 'EUR' WHERE kind = 'refund'`},                                                        // in another currency
	{"", paidFor, `UPDATE ledger_entries SET debit_wallet = (SELECT id FROM wallets WHERE owner_id = 'carol') WHERE kind = 'purchase'`},      // somebody else paid
	{"", paidFor, `UPDATE ledger_entries SET credit_wallet = (SELECT id FROM wallets WHERE owner_id = 'carol') WHERE kind = 'refund'`},       // somebody else got it back
	{"", paidFor, `UPDATE ledger_entries SET reference = 'order-' || id WHERE kind = 'purchase'`},                                            // under another name
	{"", paidFor, `UPDATE ledger_entries SET scope = 'shop' WHERE kind = 'refund'`},                                                          // under a client's name
	{"", paidFor, `WITH e AS (INSERT INTO ledger_entries (id, kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency, scope, reference, purchase_id, actor) SELECT gen_random_uuid(), kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency, 'shop', reference, purchase_id, actor FROM ledger_entries WHERE kind = 'purchase' RETURNING *) ` + eventsSQL}, // paid twice
	{"", paidFor, `UPDATE ledger_entries SET purchase_id = gen_random_uuid() WHERE kind = 'refund'`},                                                    // an entry is of another purchase
	{"", paidFor, `UPDATE purchases SET state = 'completed', cancelled_at = NULL, cancelled_by = NULL, cancel_reason = NULL WHERE state = 'cancelled'`}, // given back though it was kept
	{"", paidFor, `UPDATE purchases SET state = 'cancelled', cancelled_at = now(), cancelled_by = 'app:shop' WHERE user_id = 'alice'`},                  // cancelled and not given back
	{"", paidFor, `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE state = 'completed'`},                                        // failed and paid
	{"", paidFor, `UPDATE purchases SET payment_method = 'external' WHERE user_id = 'alice'`},                                                           // an app says it has the money
	{"", paidFor, `UPDATE purchases SET payment_method = 'wallet' WHERE user_id = 'dora'`},                                                              // a wallet is said to have paid
	{"", paidFor, `UPDATE purchases SET id = gen_random_uuid() WHERE user_id = 'alice'`},                                                                // of another job
	{"", paidFor, `DELETE FROM purchases WHERE user_id = 'alice'`},                                                                                      // a purchase is gone
	{"", paidFor, `UPDATE purchases SET payment_reference = gen_random_uuid()::text WHERE user_id = 'alice'`},                                           // a purchase names another payment
	{"", paidFor, `UPDATE wallets SET owner_id = 'eve' WHERE owner_id = 'alice'`},                                                                       // the wallet that paid is somebody's
	{"", paidFor, `DELETE FROM wallets WHERE owner_id = 'alice'`},                                                                                       // the wallet that paid is not there
	{"", paidFor, `WITH e AS (INSERT INTO ledger_entries (id, kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency, scope, reference, purchase_id, actor) SELECT gen_random_uuid(), 'purchase', id, NULL, NULL, 'sales', 5, currency, '', 'purchase:none', gen_random_uuid(), 'app:shop' FROM wallets WHERE owner_id = 'carol' RETURNING *) ` + eventsSQL}, // a payment for a purchase of no one's
}

const eventsSQL = `INSERT INTO wallet_events SELECT debit_wallet, 1000, id, -amount, 0 FROM e`

func payers(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	id, seller := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Seller(db)
	for _, user := range []string{"alice", "bob", "carol"} {
		fixture.Wallet(t, db, user, 1000)
	}
	fixture.Buy(t, db, id, "dora", 4, 1)
	fixture.Complete(t, db, fixture.WalletRequest(t, id, "alice", 2, 2), fixture.WalletRequest(t, id, "bob", 3, 1))
	bought := servers.Value[uuid.UUID](t, db, `SELECT id FROM purchases WHERE user_id = 'bob' AND state = 'completed'`)
	if report, err := seller.Cancel(t.Context(), fixture.Accept(t, db, fixture.CancelRequest(t, id, bought)), sale.WaitForCampaign); err != nil || report.Outcomes[0].Problem != nil {
		t.Fatalf("%+v, %v", report, err)
	}
	return nil
}

// $1 is a wallet with a snapshot, a transfer, and an authorization of which a part is captured.
var ledgerDamages = []damage{
	{"", "what its events add up to", `UPDATE wallets SET balance = balance + 1 WHERE id = $1`},
	{"", "what its events add up to", `UPDATE wallets SET held = held - 1 WHERE id = $1`},
	{"", "what its events add up to", `UPDATE wallets SET version = version + 1 WHERE id = $1`},
	{"", "versions have no gap", `UPDATE wallet_events SET version = version + 1000 WHERE wallet_id = $1 AND version = 2`},
	{"", "less than nothing", `UPDATE wallet_events SET delta_balance = -999999 WHERE wallet_id = $1 AND version = 2`},
	{"", "exactly its event", `DELETE FROM wallet_events WHERE wallet_id = $1 AND version = 3`},
	{"", "no event is without an entry", `INSERT INTO wallet_events SELECT $1::uuid, 1 + max(version), gen_random_uuid(), 1, 0 FROM wallet_events WHERE wallet_id = $1`},
	{"", "exactly its event", `UPDATE wallet_events SET delta_balance = delta_balance + 1 WHERE wallet_id = $1 AND version = 1`},
	{"", "exactly its event", `UPDATE ledger_entries SET amount = amount + 1 WHERE kind = 'transfer' AND debit_wallet = $1`},
	{"", "a snapshot", `UPDATE wallet_snapshots SET balance = balance + 1 WHERE wallet_id = $1`},
	{"", "a snapshot", `UPDATE wallet_snapshots SET version = version - 1 WHERE wallet_id = $1`},
	{"", "zero together", `UPDATE ledger_entries SET amount = amount + 1 WHERE kind = 'credit' AND credit_wallet = $1 AND reference = (SELECT min(reference) FROM ledger_entries WHERE credit_wallet = $1)`},
	{"", "zero together", `UPDATE wallets SET balance = balance + 1 WHERE id = $1`},
	{"", "in the currency", `UPDATE wallets SET currency = 'EUR' WHERE id = $1`},
	{"", "in the currency", `DELETE FROM wallets WHERE id = $1`},
	{"", "active authorizations have left", `UPDATE authorizations SET captured = captured + 1 WHERE wallet_id = $1`},
	{"", "active authorizations have left", `UPDATE wallets SET held = held - 1 WHERE id = $1`},
	{"", "what its entries made of it", `UPDATE authorizations SET captured = captured + 1 WHERE wallet_id = $1`},
	{"", "what its entries made of it", `UPDATE authorizations SET state = 'expired', ended_at = now() WHERE wallet_id = $1`},
	{"", "what its entries made of it", `DELETE FROM authorizations WHERE wallet_id = $1`},
}

// rich makes a wallet with rows for every invariant.
func rich(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	owners := []wallet.Owner{{ID: "alice", Currency: "JPY"}, {ID: "bob", Currency: "JPY"}}
	var id uuid.UUID
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		created, err := wallet.Create(t.Context(), tx, []wallet.NewWallet{{Owner: owners[0]}, {Owner: owners[1]}})
		if err != nil {
			return err
		}
		id = created[owners[0]].ID
		b, err := wallet.Open(t.Context(), tx, wallet.ReadSet{Wallets: []uuid.UUID{id, created[owners[1]].ID}}, postgres.WaitForLocks)
		if err != nil {
			return err
		}
		for range wallet.SnapshotEvery {
			if _, err := b.Credit(id, wallet.Movement{Amount: 100}); err != nil {
				return err
			}
		}
		if _, err := b.Transfer(id, created[owners[1]].ID, wallet.Movement{Amount: 7}); err != nil {
			return err
		}
		a, err := b.Authorize(id, wallet.Movement{Amount: 50}, time.Hour)
		if err != nil {
			return err
		}
		if _, err := b.Capture(id, a.ID, wallet.Movement{Amount: 20}); err != nil {
			return err
		}
		return b.Write(t.Context(), tx)
	})
	servers.NoError(t, err)
	return map[string]uuid.UUID{"": id}
}

var webhookDamages = []damage{
	{"", "has its event", `DELETE FROM webhook_events WHERE type = 'purchase.completed'`},
	{"", "has its event", `INSERT INTO webhook_attempts (event_id, endpoint_id, at, duration_ms) SELECT gen_random_uuid(), id, now(), 1 FROM webhook_endpoints`},
	{"", "its own client's resources", `UPDATE webhook_endpoints SET client = 'other'`},
	{"", "is everybody's", `UPDATE webhook_events SET client = NULL WHERE type = 'purchase.completed'`},
	{"", "its resource's client's", `UPDATE webhook_events SET client = 'other' WHERE type = 'purchase.completed'`},
	{"", "has arrived there", `DELETE FROM webhook_attempts`},
	{"", "has arrived there", `UPDATE webhook_attempts SET error = 'answered 500'`},
	{"", "what its event is", `UPDATE webhook_events SET payload = '{"type":"hold.created"}'`},
	{"", "one present secret", `DELETE FROM webhook_secrets`},
	{"", "one present secret", `UPDATE webhook_secrets SET expires_at = now()`},
}

// told makes an endpoint that was told of a purchase.
// There are three seals: of three rows, of one, and of one. One row has none yet.
var sealedDamages = []damage{
	{"first", "a row has changed", `UPDATE audit_trail SET reason = 'another' WHERE id = $1`},
	{"first", "a row has changed", `UPDATE audit_trail SET at = at + interval '1 microsecond' WHERE id = $1`},
	{"first", "seal 1, of 3 rows", `DELETE FROM audit_trail WHERE id = $1`},
	{"", "seal 2, of 1 rows", `DELETE FROM audit_trail WHERE seal = 2`},
	{"", "it has 2 rows", `INSERT INTO audit_trail (id, client, via, operation, target, seal) VALUES (gen_random_uuid(), 'x', 'cli', 'x', 'x', 2)`},
	{"", "the seal before has changed", `DELETE FROM audit_seals WHERE seal = 1`},
	{"", "seal 2", `UPDATE audit_seals SET hash = sha256(hash) WHERE seal = 2`},
	{"", "a row has changed", `UPDATE audit_seals SET previous = sha256(hash) WHERE seal = 1`},
	{"first", "the seal before has changed", `WITH gone AS (DELETE FROM audit_trail WHERE seal = 1) DELETE FROM audit_seals WHERE seal = 1 AND $1::uuid IS NOT NULL`},
}

func sealed(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	ctx := trail.With(t.Context(), &trail.Actor{Client: "ops", Via: "api", Operation: "pauseCampaign", Target: "t", Reason: "why"})
	for _, rows := range []int{3, 1, 1, 1} {
		run := sweep.Run{Counts: make(sweep.Counts), BatchSize: 500, MaxBatches: 1}
		servers.NoError(t, trail.Seals(db, servers.Logger(t)).Run(t.Context(), run))
		for i := range rows {
			servers.NoError(t, trail.Write(ctx, db, nil, map[string]int{"n": i}))
		}
	}
	return map[string]uuid.UUID{"first": servers.Value[uuid.UUID](t, db, `SELECT id FROM audit_trail ORDER BY id LIMIT 1`)}
}

func told(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	url, id := "https://shop.example/", uuidv7.New()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		_, err := webhook.Create(t.Context(), tx, webhook.Endpoint{ID: id, Client: "test", URL: url, Events: []string{"*"}}, []byte("sealed"), 1)
		return err
	})
	servers.NoError(t, err)
	fixture.Buy(t, db, fixture.Campaign(t, db, fixture.Draft(3)), "mina", 0, 1)
	e, ok, err := webhook.Claim(t.Context(), db, lease.Item{ID: id}, time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	due, err := webhook.DueEvents(t.Context(), db, id, 10)
	if err != nil || len(due) != 1 {
		t.Fatal(due, err)
	}
	status := 200
	sent := webhook.AttemptResult{Attempt: webhook.Attempt{EventID: due[0].ID, At: time.Now(), Status: &status}, Due: due[0].Due}
	err = postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		_, err := webhook.Record(t.Context(), tx, e, webhook.Round{Sent: []webhook.AttemptResult{sent}, Arrived: true}, time.Hour)
		return err
	})
	servers.NoError(t, err)
	return nil
}

// A freeze and a draw are redone from what they were made from.
var drawDamages = []damage{
	{"complete", "the stored list is not the one that was frozen", `UPDATE freezes SET root = sha256(root) WHERE campaign_id = $1`},
	{"waiting", "the stored list is not the one that was frozen", `UPDATE freeze_subtrees SET leaves = set_byte(leaves, 55, get_byte(leaves, 55) # 1) WHERE campaign_id = $1`},
	{"complete", "the stored list is not the one that was frozen", `DELETE FROM freeze_subtrees WHERE campaign_id = $1`},
	{"complete", "its subtrees are not those of the stored list", `UPDATE freeze_subtrees SET hash = sha256(hash) WHERE campaign_id = $1`},
	{"waiting", "the sold positions are not those of the stored list", `UPDATE purchases SET user_id = 'somebody else' WHERE campaign_id = $1`},
	{"waiting", "the sold positions are not those of the stored list", `UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, sold_at = NULL WHERE campaign_id = $1 AND (layer, col) = (3, 3)`},
	{"complete", "its freeze record is not what it was frozen with", `UPDATE freezes SET record = replace(record, '"count":6', '"count":7') WHERE campaign_id = $1`},
	{"complete", "its freeze record is not what it was frozen with", `UPDATE freezes SET frozen_at = frozen_at - interval '1 microsecond' WHERE campaign_id = $1`},
	{"complete", "its freeze record is not what it was frozen with", `UPDATE freezes SET round = round + 1 WHERE campaign_id = $1`},
	{"waiting", "the newest at the freeze", `UPDATE freezes SET record = replace(record, '"round":' || round, '"round":' || (round + 21)), round = round + 21 WHERE campaign_id = $1`},
	{"waiting", "the newest at the freeze", `UPDATE freezes SET record = replace(record, '"round":' || round, '"round":' || (round - 25)), round = round - 25 WHERE campaign_id = $1`},
	{"waiting", "the secret in its freeze record is not the one committed to",
		`UPDATE freezes SET record = regexp_replace(record, '"secret":"[0-9a-f]{64}"', '"secret":"` + strings.Repeat("ab", 32) + `"') WHERE campaign_id = $1`},
	{"complete", "its freeze and its rules do not agree on a beacon", `UPDATE freezes SET round = NULL WHERE campaign_id = $1`},
	{"complete", "the chain that its rules name is not stored as they name it", `UPDATE beacon_chains SET beacon_id = 'another' WHERE $1::uuid IS NOT NULL`},
	{"complete", "its round is not stored", `DELETE FROM beacon_rounds WHERE $1::uuid IS NOT NULL`},
	{"complete", "the signature of its round is not the chain's", `UPDATE beacon_rounds SET signature = 'forged', randomness = sha256('forged') WHERE $1::uuid IS NOT NULL`},
	{"complete", "the signature of its round is not the chain's", `INSERT INTO beacon_rounds SELECT b.chain_hash, f.round, 'forged', sha256('forged') FROM beacon_chains b, freezes f WHERE f.campaign_id = $1`},
	{"waiting", "the signature of its round is not the chain's", `INSERT INTO beacon_rounds SELECT b.chain_hash, f.round, 'forged', sha256('forged') FROM beacon_chains b, freezes f WHERE f.campaign_id = $1`},
	{"complete", "it was not drawn with the randomness of its round", `UPDATE draws SET randomness = sha256('invented') WHERE campaign_id = $1`},
	{"complete", "it was not drawn with the randomness of its round", `UPDATE draws SET trust = 'operator' WHERE campaign_id = $1`},
	{"complete", "the revealed secret is not the one committed to", `UPDATE draws SET secret = sha256(secret) WHERE campaign_id = $1`},
	{"complete", "it was drawn from another list than the frozen one", `UPDATE draws SET root = sha256(root) WHERE campaign_id = $1`},
	{"complete", "the published winners do not follow from the inputs", `UPDATE draws SET winners = '[]' WHERE campaign_id = $1`},
	{"complete", "a draw awards each prize once", `UPDATE draws SET winners = winners || winners WHERE campaign_id = $1`},
	{"complete", "was frozen after the end of the sale", `UPDATE freezes SET sold = sold - 1 WHERE campaign_id = $1`},
	{"complete", "the prizes were not awarded as published", `UPDATE prizes SET winning_column = NULL WHERE campaign_id = $1`},
	{"complete", "only a draw under way waits for something", `INSERT INTO draw_waits VALUES ($1, 'nothing', now())`},
	{"complete", "a published campaign has its sealed secret", `DELETE FROM draw_secrets WHERE campaign_id = $1`},
	{"waiting", "the beacon that its policies promise", `UPDATE commitments SET rules = regexp_replace(rules, '"beacon":[{][^}]*[}]', '"beacon":null') WHERE campaign_id = $1`},
	{"waiting", "a campaign is frozen only while it is drawing", `UPDATE campaigns SET state = 'active' WHERE id = $1`},
	{"waiting", "when its draw is void", `UPDATE campaigns SET state = 'cancelled', draw_started_at = now() - interval '2 days', cancelled_at = now(), cancelled_by = 'operator:ops' WHERE id = $1`},
	{"waiting", "when its draw is void", `WITH late AS (INSERT INTO draw_voids VALUES ($1, now(), now() + interval '168 hours')) UPDATE campaigns SET state = 'cancelled', draw_started_at = now() - interval '2 days', cancelled_at = now(), cancelled_by = 'operator:ops' WHERE id = $1`},
	{"complete", "a campaign is frozen only while it is drawing", `WITH below AS (DELETE FROM freeze_subtrees WHERE campaign_id = $1) DELETE FROM freezes WHERE campaign_id = $1`},
}

// drawn draws a campaign with a beacon, and leaves another one with its freeze.
func drawn(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	chain := minutes(t)
	drawer := drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, drawing.DrawerOptions{Beacon: chain}, servers.Logger(t))
	frozen := func() job.Ref {
		draft := fixture.Draft(3)
		draft.Policies.Beacon = true
		ref := fixture.SellOut(t, db, fixture.CampaignOn(t, db, draft, &chain.Chain))
		if _, err := drawer.Run(t.Context(), ref); !errors.As(err, new(*drawing.Snoozed)) {
			t.Fatalf("it does not wait: %v", err)
		}
		return ref
	}
	complete, waiting := frozen(), frozen()
	f, _, err := drawing.FreezeOf(t.Context(), db, complete.CampaignID)
	if err == nil {
		err = drawing.InsertRound(t.Context(), db, chain.Hash(), chain.Sign(*f.Round))
	}
	if err == nil {
		_, err = drawer.Run(t.Context(), complete)
	}
	servers.NoError(t, err)
	return map[string]uuid.UUID{"complete": complete.CampaignID, "waiting": waiting.CampaignID}
}

// minutes returns a chain with rounds of a minute.
func minutes(t *testing.T) *drandsim.Chain {
	t.Helper()
	chain, err := drandsim.NewChain([]byte(strings.Repeat("5e", 32)), time.Now().Add(-time.Hour), time.Minute)
	servers.NoError(t, err)
	return chain
}

// a has a purchase cancelled as a whole, and b one in two parts.
var cancelledDamages = []damage{
	{"job", "a succeeded cancellation job has cancelled the purchase it was about, or positions of it", `UPDATE jobs SET result = '{"purchase_id": "x"}' WHERE id = $1`},
	{"job", "a purchase is cancelled by one job", `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, payload, state, result, finished_at, expires_at)
		SELECT gen_random_uuid(), client, 'another', request_hash, kind, campaign_id, payload, state, result, finished_at, expires_at FROM jobs WHERE id = $1`},
	{"whole", "a sold position belongs to a completed purchase of its owner", `
		WITH taken AS (SELECT layer, col FROM purchase_items WHERE purchase_id = $1)
		UPDATE positions p SET state = 'sold', user_id = 'a', purchase_id = $1, sold_at = clock_timestamp()
		FROM taken WHERE (p.layer, p.col) = (taken.layer, taken.col)`},
	{"whole", "a succeeded purchase job has exactly its purchase, completed or taken back since", `UPDATE purchases SET state = 'pending', cancelled_at = NULL, cancelled_by = NULL WHERE id = $1`},
	{"parts", "wallet_refunds", `DELETE FROM refunds WHERE number = 2 AND purchase_id = $1`},
	{"parts", "wallet_refunds", `UPDATE refunds SET amount = amount - 1 WHERE number = 1 AND purchase_id = $1`},
	{"parts", "wallet_refunds", `UPDATE refunds SET user_id = 'c' WHERE purchase_id = $1`},
	{"parts", "wallet_refunds", `
		INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state)
		SELECT gen_random_uuid(), purchase_id, 3, campaign_id, user_id, method, 1, currency, reason, state FROM refunds WHERE number = 1 AND purchase_id = $1`},
}

func cancelled(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	id := fixture.Campaign(t, db, fixture.Draft(4))
	whole, parts := fixture.Buy(t, db, id, "a", 0, 1), fixture.Buy(t, db, id, "b", 4, 3)
	p, err := purchase.Get(t.Context(), db, access.Everything(), parts)
	servers.NoError(t, err)
	part := fixture.CancelRequestOf(t, id, sale.Cancellation{PurchaseID: parts, Positions: []shape.Position{p.Items[0].Position}, By: "app:test"})
	refs := fixture.Accept(t, db, fixture.CancelRequest(t, id, whole), part, fixture.CancelRequest(t, id, parts))
	_, err = fixture.Seller(db).Cancel(t.Context(), refs, sale.WaitForCampaign)
	servers.NoError(t, err)
	return map[string]uuid.UUID{"job": refs[0].ID, "whole": whole, "parts": parts}
}

var calledOffDamages = []damage{
	{"", "a cancelled campaign has no active holds", `UPDATE holds SET state = 'active', ended_at = NULL`},
	{"", "a campaign whose cancellation has succeeded is cancelled, and nothing of it is sold", `UPDATE campaigns SET positions_sold = 1`},
	{"", "a purchase by wallet or external has a refund of each cancelled part, and of the rest when it is cancelled, to its buyer, and no other has one", `UPDATE refunds SET amount = amount - 1`},
}

// calledOff cancels a campaign with a hold and a purchase.
func calledOff(t *testing.T, db *pgxpool.Pool) map[string]uuid.UUID {
	t.Helper()
	campaignID := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Buy(t, db, campaignID, "mina", 0, 2)
	fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldAnyRequest(campaignID, "otto", 0, 1))
	payload, err := json.Marshal(lifecycle.CancelOrder{By: "operator:ops"})
	servers.NoError(t, err)
	id := uuidv7.New()
	ref := fixture.Accept(t, db, job.Request{ID: id, Client: "test", Key: id.String(), Kind: job.KindCampaignCancellation, CampaignID: campaignID,
		Payload: payload, Retention: time.Hour})[0]
	if _, err := lifecycle.NewCanceller(db, lifecycle.Observer{}, servers.Logger(t)).Run(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	return nil
}

// The rules of a campaign of 1,000 layers and 10,000 prizes have half a megabyte. A query
// that reads them once for each layer takes minutes, and keeps its snapshot open.
func TestTheAuditReadsTheRulesOfACampaignOnceHoweverManyLayersItHas(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	d := fixture.Draft(3)
	d.BaseLength, d.Layers = 0, nil
	for i := range 60 {
		d.Layers = append(d.Layers, campaign.Layer{Layer: i + 1, Positions: 2, Price: 100})
	}
	fixture.Campaign(t, db, d)
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	scans := 0
	for _, i := range upkeep.Invariants {
		plan, err := postgres.Collect(t.Context(), tx, pgx.RowTo[string], "EXPLAIN (ANALYZE, TIMING off, COSTS off) "+i.SQL)
		servers.NoError(t, err)
		for _, line := range plan {
			if strings.Contains(line, "Function Scan on jsonb_to_recordset x (actual") {
				if scans++; !strings.Contains(line, "loops=1)") {
					t.Errorf("%s reads the rules more than once:\n%s", i.Name, strings.Join(plan, "\n"))
				}
			}
		}
	}
	if scans == 0 {
		t.Error("no invariant reads the rules")
	}
}
