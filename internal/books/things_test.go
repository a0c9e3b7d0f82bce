package books_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/books"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// happen does one thing, if it can be done now.
func (f *firm) happen() {
	f.Helper()
	f.free()
	if open := slices.DeleteFunc(slices.Clone(f.offers), func(o *offer) bool { return o.over }); len(open) < 3 {
		f.publish()
	}
	switch n := f.random.IntN(100); {
	case n < 12:
		o, some := f.offer()
		f.sell(purchase.External, o, some)
	case n < 22:
		o, some := f.offer()
		f.sell(purchase.Wallet, o, some)
	case n < 42:
		f.sellByCard()
	case n < 54:
		f.moveMoney()
	case n < 66:
		f.cancel()
	case n < 73:
		f.beOperator()
	case n < 78:
		f.beApp()
	case n < 83:
		f.beOthers()
	case n < 88:
		f.dispute()
	case n < 91:
		_, err := f.sim.Payout(map[bool]string{true: "usd", false: "jpy"}[f.rules.EarnedAt == books.AtSaleEnd], int64(f.random.IntN(20)))
		f.must(err)
	case n < 95:
		f.draw()
	default:
		f.callOff()
	}
}

// sell sells outside or by wallet, a part by jobs that have waited. It returns the draws that this makes.
func (f *firm) sell(method purchase.PaymentMethod, o *offer, some []shape.Position) []job.Message {
	if o == nil {
		return nil
	}
	ago := time.Duration(f.random.IntN(60)) * time.Minute
	if f.random.IntN(4) == 0 {
		ago = time.Duration(61+f.random.IntN(6000)) * time.Minute
	}
	request := f.request(o, fmt.Sprint("wallet-", f.random.IntN(len(f.wallets))), method, "", some, ago)
	report, err := fixture.Seller(f.db).Sell(f.Context(), fixture.Accept(f, f.db, request), sale.WaitForCampaign)
	f.must(err)
	if fixture.Job(f, f.db, request.ID).State != job.Succeeded { // the wallet has too little
		o.free = append(o.free, some...)
		return nil
	}
	d := &deal{offer: o, id: request.ID, method: string(method), bought: some, sold: f.now}
	f.deals = append(f.deals, d)
	from := map[purchase.PaymentMethod]string{purchase.External: "cash_outside", purchase.Wallet: "wallet_liability"}[method]
	f.post(f.now, "purchase", d.id.String(), d, from, "unearned", price(some), "JPY")
	return report.Messages
}

// sellByCard sells by a card that pays, is declined, or takes so long that the positions are free again.
func (f *firm) sellByCard() {
	o, some := f.offer()
	if o == nil {
		return
	}
	all := []string{"pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_refundFail", "pm_card_pendingRefund", "pm_card_createDispute", "pm_card_createDisputeInquiry", "pm_card_chargeDeclined", "pm_sandbox_processing"}
	card := all[f.random.IntN(len(all))]
	d := &deal{offer: o, method: "card", late: card == "pm_sandbox_processing"}
	request := f.request(o, uuid.NewString(), purchase.Card, card, some, 0)
	if d.id = request.ID; d.late || card == "pm_card_chargeDeclined" {
		d.reserved, d.freed = some, f.now.Add(12*time.Hour)
	} else {
		d.bought = some
	}
	f.deals = append(f.deals, d)
	fixture.ReserveFor(f, f.db, request, time.Hour)
	p := fixture.Payment(f, f.db, d.id)
	result, err := f.payments.Run(f.Context(), p.Ref().Item())
	f.must(err)
	if result.Outcome == cards.Settle {
		fixture.SettlePayments(f, f.db, job.Ref{ID: d.id, CampaignID: o.id})
	}
}

// free lets positions be sold again whose reservations have ended.
func (f *firm) free() {
	for _, d := range f.deals {
		if d.reserved != nil && d.freed.Before(f.now) {
			d.offer.free, d.reserved = append(d.offer.free, d.reserved...), nil
		}
	}
}

// moveMoney moves money of wallets.
func (f *firm) moveMoney() {
	i := f.random.IntN(len(f.wallets))
	from, to := f.wallets[i], f.wallets[(i+1)%len(f.wallets)]
	f.serial++
	m := wallet.Movement{Amount: money.Amount(1 + f.random.IntN(2500)), Reference: wallet.Reference{Scope: "test", Text: fmt.Sprint("movement-", f.serial)}}
	want, h, what := wallet.ReadSet{Wallets: []uuid.UUID{from, to}, References: []wallet.Reference{m.Reference}}, (*hold)(nil), f.random.IntN(9)
	if what > 6 {
		if h = pick(f, f.holds, func(h *hold) bool { return h.left > 0 && f.now.Sub(h.made) < 29*24*time.Hour }); h == nil {
			return
		}
		want.Wallets, want.Authorizations = []uuid.UUID{h.wallet}, []uuid.UUID{h.id}
		m.Amount = money.Amount(1 + f.random.Int64N(h.left))
	}
	var debit, credit string
	err := postgres.InTx(f.Context(), f.db, func(tx pgx.Tx) error {
		unit, err := wallet.Open(f.Context(), tx, want, postgres.WaitForLocks)
		f.must(err)
		switch what {
		case 0, 1, 2:
			m.Amount *= 2
			debit, credit = "cash_outside", "wallet_liability"
			_, err = unit.Credit(from, m)
		case 3:
			debit, credit = "wallet_liability", "cash_outside"
			_, err = unit.Debit(from, m)
		case 4:
			_, err = unit.Transfer(from, to, m)
		case 5, 6:
			var made wallet.Authorization
			if made, err = unit.Authorize(from, m, 30*24*time.Hour); err == nil {
				f.holds = append(f.holds, &hold{from, made.ID, f.now, int64(m.Amount)})
			}
		default:
			debit, credit = "wallet_liability", "cash_outside"
			h.left -= int64(m.Amount)
			_, err = unit.Capture(h.wallet, h.id, m)
		}
		if err == nil {
			err = unit.Write(f.Context(), tx)
		}
		return err
	})
	if fault.CodeOf(err) == fault.InsufficientFunds {
		return
	}
	f.must(err)
	if debit != "" {
		f.post(f.now, "ledger_entry", m.Reference.Text, nil, debit, credit, int64(m.Amount), "JPY")
	}
}

// young is a payment to which something may happen: the simulator forgets its objects after 30 days, and days are compared 12 days late.
const young = 17 * 24 * time.Hour

func (f *firm) isYoung(d *deal) bool { return f.now.Sub(d.sold) < young }

// cancel cancels a purchase, or one position of it.
func (f *firm) cancel() {
	d := pick(f, f.deals, func(d *deal) bool {
		return len(d.bought) > 0 && !d.sold.IsZero() && !d.offer.over && (d.method != "card" || f.isYoung(d) && d.open == 0 && !d.quiet)
	})
	if d == nil {
		return
	}
	c, given := sale.Cancellation{PurchaseID: d.id, By: "operator:test", AnyTime: true}, d.bought
	if len(d.bought) > 1 && f.random.IntN(2) == 0 {
		given = d.bought[:1]
		c.Positions = given
	}
	ref := fixture.Accept(f, f.db, fixture.CancelRequestOf(f, d.offer.id, c))
	_, err := fixture.Seller(f.db).Cancel(f.Context(), ref, sale.WaitForCampaign)
	f.must(err)
	if j := fixture.Job(f, f.db, ref[0].ID); j.State != job.Succeeded {
		f.Fatalf("%s is not cancelled: %+v", d.id, j.Problem)
	}
	f.giveBack(d, price(given))
	d.offer.free, d.bought = append(d.offer.free, given...), d.bought[len(given):]
}

// callOff cancels a campaign.
func (f *firm) callOff() {
	o := f.still()
	if o == nil {
		return
	}
	payload, err := json.Marshal(lifecycle.CancelOrder{By: "operator:test"})
	f.must(err)
	request := fixture.Command(job.KindCampaignCancellation)
	request.CampaignID, request.Payload = o.id, payload
	ref := fixture.Accept(f, f.db, request)[0]
	if _, err := lifecycle.NewCanceller(f.db, lifecycle.Observer{}, servers.Logger(f)).Run(f.Context(), ref); err != nil && !errors.Is(err, lifecycle.ErrSnoozed) {
		f.Fatal(err)
	}
	o.over = true
	for _, d := range f.deals {
		if d.offer == o && len(d.bought) > 0 && !d.sold.IsZero() {
			f.giveBack(d, price(d.bought))
			d.bought = nil
		}
	}
}

// still is a campaign that sells, and in which no card is under way.
func (f *firm) still() *offer {
	return pick(f, f.offers, func(o *offer) bool {
		return !o.over && !slices.ContainsFunc(f.deals, func(d *deal) bool {
			return d.offer == o && (d.reserved != nil || d.method == "card" && len(d.bought) > 0 && (!f.isYoung(d) || d.open*d.others > 0))
		})
	})
}

// draw sells all that is left of a campaign, or draws one that is sold out.
func (f *firm) draw() {
	if o := pick(f, f.offers, func(o *offer) bool { return o.draw != nil }); o != nil {
		drawer := drawing.NewDrawer(f.db, fixture.Key(f), config.Draw{Lease: time.Hour, Timeout: servers.Patience}, drawing.DrawerOptions{}, servers.Logger(f))
		outcome, err := drawer.Run(f.Context(), *o.draw)
		if err != nil || outcome.Problem != nil {
			f.Fatal(err, outcome.Problem)
		}
		if o.draw = nil; f.rules.EarnedAt == books.AtResult {
			f.earn(o)
		}
		return
	}
	if o := f.still(); o != nil {
		all := o.free
		o.free, o.over = nil, true
		for _, m := range f.sell(purchase.External, o, all) {
			o.draw = &m.Jobs[0]
		}
		if o.draw == nil {
			f.Fatalf("%s is not sold out", o.id)
		}
		if f.rules.EarnedAt == books.AtSaleEnd {
			f.earn(o)
		}
	}
}

// beOperator has refunds tried again that the provider has refused, or makes them by hand.
func (f *firm) beOperator() {
	d := pick(f, f.deals, func(d *deal) bool { return d.method == "card" && d.open > 0 && !d.quiet })
	if d == nil {
		return
	}
	var waiting []payment.Refund
	var due int64
	for _, r := range f.refundsOf(d) {
		if r.ForOperator() {
			waiting, due = append(waiting, r), due+int64(r.Due)
		}
	}
	if due != d.open {
		f.Errorf("%s: %d are due, and %d on paper", d.id, due, d.open)
	}
	service := refunds.NewService(f.db, func(payment.Refund) any { return map[string]any{} })
	if len(waiting) == 1 && d.bank.amount == 0 && f.isYoung(d) && f.random.IntN(2) == 0 {
		f.must(fixture.Problem(service.Retry(f.Context(), fixture.Command(job.KindRefundRetry), waiting[0].ID, "operator:test")))
		return
	}
	for _, r := range waiting {
		f.must(fixture.Problem(service.Resolve(f.Context(), fixture.Command(job.KindRefundResolve), access.Everything(), refunds.ByHand{ID: r.ID, Amount: r.Due}, "operator:test", "by hand")))
		f.byHand(d, int64(r.Due))
	}
	d.open, d.fresh, d.back = 0, 0, d.back+d.open
}

// beApp gives cash back.
func (f *firm) beApp() {
	d := pick(f, f.deals, func(d *deal) bool { return d.method == "external" && d.open > 0 })
	if d == nil {
		return
	}
	service := refunds.NewService(f.db, func(payment.Refund) any { return map[string]any{} })
	for _, r := range f.refundsOf(d) {
		if r.State == payment.RefundListed {
			f.must(fixture.Problem(service.Resolve(f.Context(), fixture.Command(job.KindRefundResolve), access.OfClient("test"), refunds.ByHand{ID: r.ID, Amount: r.Due}, "app:test", "in cash")))
			f.byHand(d, int64(r.Due))
			d.open -= int64(r.Due)
		}
	}
	if d.open != 0 {
		f.Errorf("%s: %d are open that are not listed", d.id, d.open)
	}
}

func (f *firm) refundsOf(d *deal) []payment.Refund {
	all, err := payment.RefundsOfPurchases(f.Context(), f.db, []uuid.UUID{d.id})
	f.must(err)
	return all[d.id]
}

// beOthers makes a refund at the provider, has one sent back by the bank, or lets slow money come.
func (f *firm) beOthers() {
	if d := pick(f, f.deals, func(d *deal) bool {
		return d.late && d.sold.IsZero() && d.reserved == nil && f.now.Sub(d.freed) < young
	}); d != nil {
		f.must(f.sim.Finish(d.intent, true))
		return
	}
	if d := pick(f, f.deals, func(d *deal) bool { return d.others > 0 && f.isYoung(d) && !d.quiet }); d != nil && f.random.IntN(3) == 0 {
		f.must(f.sim.FinishRefund(d.byOthers, "failed"))
		return
	}
	d := pick(f, f.deals, func(d *deal) bool {
		return d.charge != "" && f.isYoung(d) && d.bank.amount == 0 && d.byOthers == "" && (d.open == 0 || len(d.bought) > 0) && d.paid-d.back >= 100 && !d.quiet
	})
	if d != nil {
		made, err := f.client.CreateRefund(f.Context(), payprovider.NewRefund{Key: uuid.NewString(), IntentID: d.intent, Amount: 50})
		f.must(err)
		d.byOthers = made.ID
	}
}

// dispute has a buyer dispute a charge, a bank decide, or change what it has taken.
func (f *firm) dispute() {
	if d := pick(f, f.deals, func(d *deal) bool { return strings.HasSuffix(d.bank.status, "needs_response") && f.isYoung(d) }); d != nil && f.random.IntN(3) > 0 {
		f.must(f.sim.CloseDispute(d.bank.dispute, f.random.IntN(2) == 0))
		return
	}
	if d := pick(f, f.deals, func(d *deal) bool { return d.bank.status == "lost" && d.debt == 0 && d.others == 0 && !d.quiet }); d != nil && f.random.IntN(3) == 0 {
		servers.Exec(f, f.db, `UPDATE disputes SET amount = amount - 30, fee = fee + 7 WHERE id = $1`, d.bank.dispute)
		d.quiet = true // the provider does not know
		is := d.bank
		is.amount, is.fee = is.amount-30, is.fee+7
		f.take(d, is)
		return
	}
	if d := pick(f, f.deals, func(d *deal) bool {
		return d.charge != "" && f.isYoung(d) && d.bank.status == "" && d.paid-d.back-d.others > 0 && !d.quiet
	}); d != nil {
		_, err := f.sim.Dispute(d.charge)
		f.must(err)
	}
}
