//go:build failpoint

package sale_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"triprize/internal/campaign"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
)

// bank is the provider: the truth about intents, not what our rows say.
type bank struct {
	mu      sync.Mutex
	intents map[uuid.UUID]string // created, authorized, processing, captured or canceled
}

func newBank() *bank { return &bank{intents: make(map[uuid.UUID]string)} }

// confirm moves an intent unless it has ended: the bank takes no confirmation then.
func (b *bank) confirm(id uuid.UUID, to string) {
	if b.intents[id] != "canceled" && b.intents[id] != "captured" {
		b.intents[id] = to
	}
}

// next does the next thing about a payment as a worker would: it asks the bank, and says
// what is to be written. choice is what the bank and the buyer do.
func (b *bank) next(p *payment.Payment, choice int) (guard payment.Precondition, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := p.PurchaseID
	giveUp := func(why payment.Ending) { p.Phase, p.Ending = payment.Expiring, &why }
	switch {
	case p.Phase.BeforeCapture() && p.Over:
		giveUp(payment.Expired)
	case p.Phase == payment.Reserved:
		p.Phase, p.Attempt = payment.Creating, 1
	case p.Phase == payment.Creating:
		intent := "pi_" + id.String()
		p.Phase, p.IntentID, b.intents[id] = payment.Confirming, &intent, "created"
	case p.Phase == payment.CardDeclined && choice%2 == 0:
		giveUp(payment.Declined)
	case p.Phase == payment.Confirming, p.Phase == payment.Action, p.Phase == payment.CardDeclined:
		return b.confirmed(p, choice)
	case p.Phase == payment.Processing && choice%3 != 1:
		b.confirm(id, "authorized")
		p.Phase, guard = payment.Capturing, payment.BeforeDeadline
	case p.Phase == payment.Capturing:
		if b.confirm(id, "captured"); b.intents[id] == "canceled" {
			giveUp(payment.Expired)
			return guard, true
		}
		p.Phase, p.Received = payment.Captured, p.Amount
	case p.Phase == payment.Expiring, p.Phase == payment.Late:
		b.give(p, choice)
	case p.Phase == payment.Cancelled && p.IntentID != nil && choice%7 == 0: // no bank should do this
		b.intents[id] = "captured"
		p.Phase, p.Received = payment.Captured, p.Amount
	default:
		return guard, false
	}
	return guard, true
}

// confirmed is what becomes of a confirmation.
func (b *bank) confirmed(p *payment.Payment, choice int) (guard payment.Precondition, ok bool) {
	switch choice % 5 {
	case 0:
		p.Phase = payment.Action
	case 1:
		b.confirm(p.PurchaseID, "processing")
		p.Phase = payment.Processing
	case 2:
		p.Phase, p.DeclinedUntil, p.Decline = payment.CardDeclined, &p.Deadline, &payprovider.Decline{Code: "card_declined", DeclineCode: "insufficient_funds"}
	default:
		b.confirm(p.PurchaseID, "authorized")
		p.Phase, guard = payment.Capturing, payment.BeforeDeadline
	}
	return guard, true
}

// give cancels an intent, if the bank lets it.
func (b *bank) give(p *payment.Payment, choice int) {
	id := p.PurchaseID
	switch {
	case b.intents[id] == "captured", b.intents[id] == "processing" && choice%2 == 0:
		b.intents[id] = "captured"
		p.Phase, p.Received = payment.Captured, p.Amount
	case b.intents[id] == "processing" && p.Phase == payment.Expiring && !p.Uncancellable:
		p.Uncancellable = true
	default:
		b.intents[id] = "canceled"
		p.Phase = payment.Ended
	}
}

// lead does the next thing about some payment, final ones too.
func (m *model) lead(rt *rapid.T) func() {
	which, choice := rapid.IntRange(0, 9).Draw(rt, "which"), rapid.IntRange(0, 69).Draw(rt, "choice")
	return func() {
		all := m.payments(`true`)
		if len(all) > 0 {
			m.leadOne(all[which%len(all)], choice)
		}
	}
}

// payments returns the purchases with payments of which where is true.
func (m *model) payments(where string) []uuid.UUID {
	all, err := postgres.Collect(m.t.Context(), m.db, pgx.RowTo[uuid.UUID], `SELECT purchase_id FROM payments WHERE campaign_id = $1 AND `+where+` ORDER BY 1`, m.id)
	if err != nil {
		m.t.Errorf("payments: %v", err)
	}
	return all
}

func (m *model) leadOne(id uuid.UUID, choice int) {
	p := fixture.Payment(m.t, m.db, id)
	guard, ok := m.bank.next(&p, choice)
	if !ok || m.t.Failed() {
		return
	}
	if err := fixture.Lead(m.t, m.db, &p, guard); err != nil && !errors.Is(err, lease.ErrFenced) && !postgres.IsTransient(err) {
		m.t.Errorf("lead: %v", err)
	}
}

func (m *model) expire(*rapid.T) func() {
	return func() {
		if _, err := sale.ExpireReservations(m.t.Context(), m.db, 100); err != nil && !postgres.IsTransient(err) {
			m.t.Errorf("expire: %v", err)
		}
	}
}

func (m *model) conclude(rt *rapid.T) func() {
	refs, wait := m.some(rt), rapid.SampledFrom(allWaits).Draw(rt, "wait")
	return func() {
		defer func() {
			if p := recover(); p != nil && p != errDies { //nolint:errorlint // the very value
				panic(p)
			}
		}()
		report, err := m.seller.Conclude(m.t.Context(), refs, wait)
		m.after("conclude", report, err)
	}
}

// concludeAndDie concludes payments in a worker that dies right before its commit.
func (m *model) concludeAndDie(rt *rapid.T) func() {
	conclude, victim := m.conclude(rt), fmt.Sprintf("user-%d", rapid.IntRange(1, 4).Draw(rt, "victim"))
	return func() {
		defer failpoint.Set("conclusion.commit", victim, func() { panic(errDies) })()
		conclude()
	}
}

// endCampaign cancels the campaign, one time out of eight; what it has sold stays sold here.
func (m *model) endCampaign(rt *rapid.T) func() {
	really := rapid.IntRange(0, 7).Draw(rt, "really") == 0
	return func() {
		if !really {
			return
		}
		err := postgres.InTx(m.t.Context(), m.db, func(tx pgx.Tx) error {
			if err := campaign.Lock(m.t.Context(), tx, m.id); err != nil {
				return err
			}
			_, err := tx.Exec(m.t.Context(), `
				UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1 AND state = 'active'`, m.id)
			return err
		})
		if err != nil && !postgres.IsTransient(err) {
			m.t.Errorf("end the campaign: %v", err)
		}
	}
}

// endPayments leads every payment to its end.
func (m *model) endPayments(rt *rapid.T) {
	for round := 0; ; round++ {
		open := m.payments(`finished_at IS NULL`)
		if len(open) == 0 {
			return
		}
		if round == 20 || m.t.Failed() {
			rt.Fatalf("%d payments do not end", len(open))
		}
		for _, id := range open {
			m.leadOne(id, 3)
		}
		report, err := m.seller.Conclude(m.t.Context(), m.jobs, forAll)
		m.after("conclude", report, err)
	}
}

// balance checks that the bank has captured what we have sold or give back, and no more.
func (m *model) balance(rt *rapid.T) {
	type row struct {
		ID               uuid.UUID
		Paid, Kept, Back money.Amount
	}
	rows, err := postgres.Collect(m.t.Context(), m.db, pgx.RowToStructByPos[row], `
		SELECT p.id, p.amount, CASE WHEN p.state = 'completed' THEN (SELECT sum(price) FROM purchase_items WHERE purchase_id = p.id) ELSE 0 END::bigint,
		       (SELECT coalesce(sum(amount), 0) FROM refunds r WHERE r.purchase_id = p.id)::bigint
		FROM purchases p WHERE p.campaign_id = $1 AND p.payment_method = 'card'`, m.id)
	if err != nil {
		rt.Fatal(err)
	}
	for _, r := range rows {
		captured := m.bank.intents[r.ID] == "captured"
		if captured && r.Kept+r.Back != r.Paid || !captured && r.Kept+r.Back != 0 {
			rt.Errorf("purchase %s: the bank says %q; paid %d, kept %d, refunds of %d", r.ID, m.bank.intents[r.ID], r.Paid, r.Kept, r.Back)
		}
	}
}
