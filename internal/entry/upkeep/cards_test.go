package upkeep_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// cardDamages are damages to purchases by card, and the invariant that each breaks. The
// buyers are: open, whose payment goes on; action, who must act; taken, whose cancellation
// waits; late; done, who has bought; part, who has given a part back; back, who is refunded after that; returned, whose
// money came too late; failed. Where a damage says $1, it is the purchase of the buyer.
var cardDamages = []struct{ buyer, sql, invariant string }{
	{"open", `DELETE FROM payments WHERE purchase_id = $1`, hasPayment},
	{"open", `UPDATE payments SET amount = amount + 1 WHERE purchase_id = $1`, hasPayment},
	{"open", `UPDATE payments SET currency = 'EUR' WHERE purchase_id = $1`, hasPayment},
	{"open", `UPDATE payments SET job_id = gen_random_uuid() WHERE purchase_id = $1`, hasPayment},
	{"open", `UPDATE payments SET campaign_id = gen_random_uuid() WHERE purchase_id = $1`, hasPayment},
	{"done", `UPDATE purchases SET payment_method = 'external' WHERE id = $1`, hasPayment},
	{"failed", `DELETE FROM purchases WHERE id = $1`, hasPayment},
	{"open", `UPDATE purchases SET payment_method = 'wallet' WHERE id = $1`, "a purchase that waits for its payment is paid by card"},

	{"open", `UPDATE positions SET state = 'available', user_id = NULL, purchase_id = NULL, expires_at = NULL WHERE purchase_id = $1`, keeps},
	{"open", `UPDATE purchase_items SET layer = 4, col = CASE WHEN layer = 4 THEN col % 4 + 1 ELSE col END WHERE purchase_id = $1`, keeps},
	{"failed", `UPDATE positions SET state = 'reserved', user_id = 'failed', purchase_id = $1, expires_at = now() WHERE (campaign_id, layer, col) = (SELECT campaign_id, layer, col FROM positions WHERE state = 'available' LIMIT 1)`, keeps},
	{"late", `DELETE FROM payment_steps WHERE purchase_id = $1 AND event = 'released'`, keeps},
	{"open", `INSERT INTO payment_steps (purchase_id, event) VALUES ($1, 'released')`, keeps},
	{"failed", `UPDATE positions SET state = 'reserved', user_id = 'x', purchase_id = $1, expires_at = now() WHERE (campaign_id, layer, col) = (SELECT campaign_id, layer, col FROM positions WHERE state = 'available' LIMIT 1)`, "a reserved position belongs to an open payment"},
	{"open", `DELETE FROM payments WHERE purchase_id = $1`, "a reserved position belongs to an open payment"},
	{"open", `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE id = $1`, "a reserved position belongs to an open purchase of its owner"},

	{"open", `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE id = $1`, isWhat},
	{"done", `UPDATE purchases SET state = 'failed', failure = 'internal-error' WHERE id = $1`, isWhat},
	{"done", `UPDATE payments SET phase = 'refund_due' WHERE purchase_id = $1`, isWhat},
	{"done", `UPDATE payments SET phase = 'captured', finished_at = NULL WHERE purchase_id = $1`, isWhat},
	{"returned", `UPDATE purchases SET state = 'failed' WHERE id = $1`, isWhat},
	{"returned", `UPDATE purchases SET completed_at = now() WHERE id = $1`, isWhat},
	{"failed", `UPDATE purchases SET state = 'pending', failure = NULL WHERE id = $1`, isWhat},
	{"late", `UPDATE purchases SET completed_at = now() WHERE id = $1`, isWhat},

	{"action", `UPDATE payments SET next_action = NULL WHERE purchase_id = $1`, saysHow},
	{"action", `UPDATE jobs SET progress = NULL WHERE purchase_id = $1`, saysHow},
	{"action", `UPDATE jobs SET state = 'queued' WHERE purchase_id = $1`, saysHow},
	{"action", `UPDATE purchases SET state = 'pending' WHERE id = $1`, saysHow},
	{"declined", `UPDATE jobs SET progress = NULL WHERE purchase_id = $1`, saysHow},
	{"declined", `UPDATE purchases SET state = 'pending' WHERE id = $1`, saysHow},
	{"open", `UPDATE purchases SET state = 'awaiting_action' WHERE id = $1`, saysHow},
	{"action", `UPDATE payments SET phase = 'cancelled', ending = 'expired', finished_at = now() WHERE purchase_id = $1`, "only a job whose payment is open waits for a buyer"},
	{"action", `UPDATE payments SET job_id = gen_random_uuid() WHERE purchase_id = $1`, "only a job whose payment is open waits for a buyer"},

	{"open", `UPDATE jobs SET purchase_id = gen_random_uuid() WHERE purchase_id = $1`, itsJob},
	{"open", `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE purchase_id = $1`, itsJob},
	{"done", `UPDATE jobs SET state = 'failed', result = NULL, problem = '{}' WHERE purchase_id = $1`, itsJob},
	{"failed", `UPDATE jobs SET state = 'queued', problem = NULL, finished_at = NULL WHERE purchase_id = $1`, itsJob},
	{"returned", `UPDATE jobs SET state = 'succeeded', problem = NULL, result = '{}' WHERE purchase_id = $1`, itsJob},
	{"open", `DELETE FROM jobs WHERE purchase_id = $1`, "a purchase that waits for its payment has its job"},
	{"done", `UPDATE jobs SET state = 'failed', result = NULL, problem = '{}' WHERE purchase_id = $1`, "a purchase job that failed or is open has sold nothing"},
	{"failed", `UPDATE jobs SET state = 'queued', problem = NULL, finished_at = NULL WHERE purchase_id = $1`, "a purchase job that failed or is open has sold nothing"},
	{"open", `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE purchase_id = $1`, "a purchase job that failed or is open has sold nothing"},
	{"failed", `WITH gone AS (DELETE FROM outbox_messages) UPDATE jobs SET accepted_at = now() - interval '1 hour', state = 'queued', problem = NULL, finished_at = NULL WHERE purchase_id = $1`, "a queued job is in the outbox, or its payment goes on"},

	{"taken", `UPDATE payments SET cancel_job = gen_random_uuid() WHERE purchase_id = $1`, waits},
	{"taken", `UPDATE payments SET cancel_job = NULL WHERE purchase_id = $1`, waits},
	{"taken", `UPDATE jobs SET state = 'failed', problem = '{}', finished_at = now() WHERE purchase_id = $1 AND kind = 'cancellation'`, waits},
	{"taken", `UPDATE jobs SET purchase_id = NULL WHERE purchase_id = $1 AND kind = 'cancellation'`, waits},
	{"taken", `UPDATE jobs SET payload = '{"purchase_id": "x"}' WHERE purchase_id = $1 AND kind = 'cancellation'`, waits},
	{"taken", `UPDATE payments SET phase = 'action', next_action = 'x', intent_id = 'pi' WHERE purchase_id = $1`, "a payment whose buyer took it back is given up or captured"},

	{"back", `DELETE FROM refunds WHERE purchase_id = $1`, refunded},
	{"back", `UPDATE refunds SET amount = amount - 1 WHERE purchase_id = $1`, addsUp},
	{"back", `WITH p AS (UPDATE purchases SET state = 'refunded' WHERE id = $1) UPDATE refunds SET amount = 0, state = 'succeeded', finished_at = now() WHERE purchase_id = $1`, addsUp},
	{"back", outOfBandSQL + `, amount + 1, 'succeeded', now() FROM purchases WHERE id = $1`, addsUp},
	{"done", outOfBandSQL + `, amount + 1, 'pending', NULL FROM purchases WHERE id = $1`, addsUp},
	{"back", `WITH w AS (UPDATE refunds SET state = 'pending', amount = amount - 1 WHERE purchase_id = $1) ` + outOfBandSQL + `, 1, 'failed', NULL FROM purchases WHERE id = $1`, addsUp},
	{"failed", outOfBandSQL + `, 1, 'succeeded', now() FROM purchases WHERE id = $1`, "only captured money is refunded by card"},
	{"back", `UPDATE refunds SET currency = 'EUR' WHERE purchase_id = $1`, refunded},
	{"back", `UPDATE refunds SET user_id = 'x' WHERE purchase_id = $1`, refunded},
	{"returned", `UPDATE refunds SET campaign_id = gen_random_uuid() WHERE purchase_id = $1`, refunded},
	{"back", `UPDATE purchases SET state = 'completed', cancelled_at = NULL, cancelled_by = NULL, cancel_reason = NULL WHERE id = $1`, refunded},
	{"failed", refundSQL, refunded},
	{"done", refundSQL, refunded},
	{"back", `UPDATE refunds SET state = 'succeeded', finished_at = now() WHERE purchase_id = $1`, "a purchase is refunded when its refunds are finished, and not before"},
	{"back", `UPDATE purchases SET state = 'refunded' WHERE id = $1`, "a purchase is refunded when its refunds are finished, and not before"},
	{"failed", refundSQL, "only captured money is refunded by card"},
	{"back", `UPDATE payments SET phase = 'cancelled', ending = 'expired' WHERE purchase_id = $1`, "only captured money is refunded by card"},
	{"back", `DELETE FROM payments WHERE purchase_id = $1`, "only captured money is refunded by card"},

	{"part", `UPDATE refunds SET amount = amount - 1 WHERE purchase_id = $1`, addsUp},
	{"part", `UPDATE refunds SET amount = amount + 1 WHERE purchase_id = $1`, addsUp},
	{"part", `DELETE FROM refunds WHERE purchase_id = $1`, refunded},
	{"part", `UPDATE purchases SET partial_cancellations = NULL WHERE id = $1`, refunded},

	{"open", `UPDATE payments SET due_at = NULL WHERE purchase_id = $1`, "an open payment and an open card refund are due sometime"},
	{"back", `UPDATE refunds SET due_at = NULL WHERE purchase_id = $1`, "an open payment and an open card refund are due sometime"},
	{"open", `UPDATE campaigns SET positions_reserved = positions_reserved - 1 WHERE id = (SELECT campaign_id FROM purchases WHERE id = $1)`, "the counters of a campaign equal its rows"},
	{"back", `UPDATE purchases SET cancelled_at = NULL, cancelled_by = NULL WHERE id = $1`, "a succeeded cancellation job has cancelled the purchase it was about, or positions of it"},
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

// cardBuyers makes a purchase for each buyer of cardDamages.
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
	if err != nil {
		t.Fatal(err)
	}
	fixture.Advance(t, db, bought["action"], payment.Action)
	fixture.Advance(t, db, bought["declined"], payment.CardDeclined)
	for _, buyer := range []string{"late", "returned"} {
		fixture.Advance(t, db, bought[buyer], payment.Processing)
		fixture.Advance(t, db, bought[buyer], payment.Expiring)
		servers.Exec(t, db, `UPDATE payments SET uncancellable = true, deadline = clock_timestamp() WHERE purchase_id = $1`, bought[buyer])
		fixture.Conclude(t, db, jobs[buyer])
	}
	fixture.Advance(t, db, bought["returned"], payment.Captured)
	fixture.EndAs(t, db, bought["failed"], payment.Declined)
	fixture.Conclude(t, db, jobs["returned"], jobs["failed"])
	backs := fixture.Accept(t, db, fixture.CancelRequest(t, campaign, bought["taken"]), fixture.CancelRequest(t, campaign, bought["back"]),
		fixture.CancelRequestOf(t, campaign, sale.Cancellation{PurchaseID: p.ID, Positions: []shape.Position{p.Items[0].Position}, By: "app:test"}))
	if _, err := fixture.Seller(db).Cancel(t.Context(), backs, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	return bought
}

func TestTheAuditFindsWhatIsWrongWithPurchasesByCard(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	bought := cardBuyers(t, db)
	fixture.Sound(t, db)
	for i, d := range cardDamages {
		t.Run(fmt.Sprint(i, " ", d.invariant), func(t *testing.T) {
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if tag, err := tx.Exec(t.Context(), d.sql, bought[d.buyer]); err != nil || tag.RowsAffected() == 0 {
				t.Fatalf("%d rows, %v", tag.RowsAffected(), err)
			}
			violations, err := checkIn(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range violations {
				if v.Invariant == d.invariant {
					return
				}
			}
			t.Errorf("not found after %s; found %v", d.sql, violations)
		})
	}
}
