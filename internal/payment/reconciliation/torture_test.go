package reconciliation_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/testkit/property"
	"triprize/sandbox/stripesim"
)

// history is a random one of two installations that share an account, with others and the
// account's own fees, and what is wrong with our books after it.
type history struct {
	*shop
	random *rand.Rand
	sold   []bought
	back   []uuid.UUID // refunds
	heard  []bought    // disputed
	want   []string

	underWay []string // of these: listed apart while two days are not over
}

func (h *history) step() {
	switch h.random.IntN(9) {
	case 0, 1, 2:
		h.sold = append(h.sold, h.buy("pm_card_visa"))
	case 3:
		h.buy("pm_card_chargeDeclined")
	case 4:
		if b, ok := h.take(); ok {
			h.back = append(h.back, h.giveBack(b))
		}
	case 5: // a refund fails at the bank, and is made again
		if b, ok := h.take(); ok {
			id := h.giveBack(b)
			h.must(h.sim.FinishRefund(*h.refundNow(id).ProviderID, "failed"))
			h.exec(`UPDATE refunds SET due_at = clock_timestamp() WHERE id = $1`, id)
			h.runRefund(id)
			h.tryAgain(id)
			h.back = append(h.back, id)
		}
	case 6:
		if b, ok := h.take(); ok {
			id := h.dispute(b)
			if h.random.IntN(2) == 0 {
				h.must(h.sim.CloseDispute(id, h.random.IntN(2) == 0))
			}
			h.heard = append(h.heard, b)
		}
	case 7:
		if b, ok := h.take(); ok {
			h.byHand(b.intent)
		}
	case 8:
		_, err := h.sim.Payout("jpy", 10)
		h.must(err)
	}
}

// take takes a purchase that nothing has happened to yet.
func (h *history) take() (b bought, ok bool) {
	if len(h.sold) == 0 {
		return b, false
	}
	i := h.random.IntN(len(h.sold))
	b = h.sold[i]
	h.sold = append(h.sold[:i], h.sold[i+1:]...)
	return b, true
}

// damage makes our books wrong, and notes how that is to be told.
func (h *history) damage() {
	for _, b := range h.sold {
		switch h.random.IntN(6) {
		case 0:
			h.exec(`UPDATE payments SET amount = amount + $2, received = received + $2 WHERE purchase_id = $1`, b.purchase, 1+h.random.IntN(9))
			h.want = append(h.want, "differs "+b.intent)
		case 1:
			elsewhere := "pi_" + uuid.NewString()
			h.exec(`UPDATE payments SET intent_id = $2 WHERE purchase_id = $1`, b.purchase, elsewhere)
			h.want = append(h.want, "unknown-here "+b.intent, "unknown-there "+elsewhere)
		}
	}
	for _, id := range h.back {
		r := h.refundNow(id)
		switch h.random.IntN(4) {
		case 0:
			h.exec(`UPDATE refunds SET state = 'pending', finished_at = NULL WHERE id = $1`, id)
			h.want = append(h.want, "differs "+*r.ProviderID)
			h.underWay = append(h.underWay, "differs "+*r.ProviderID)
		case 1:
			elsewhere := "re_" + uuid.NewString()
			h.exec(`UPDATE refunds SET provider_id = $2 WHERE id = $1`, id, elsewhere)
			h.want = append(h.want, "unknown-here "+*r.ProviderID, "unknown-there "+elsewhere)
		}
	}
	for _, b := range h.heard {
		if h.random.IntN(3) == 0 {
			h.want = append(h.want, "unknown-here "+*disputeOf(h.shop, b))
			h.exec(`UPDATE disputes SET id = 'du_elsewhere_' || id WHERE purchase_id = $1`, b.purchase)
		}
	}
}

func TestARandomHistoryShowsExactlyWhatIsWrong(t *testing.T) {
	t.Parallel()
	for seed := range property.Cases(t) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			settings := stripesim.Settings{}
			if random.IntN(2) == 0 {
				settings.SettlesIn, settings.ExchangeRate = "usd", 0.65
			}
			a := openAccount(t, settings)
			all := []*history{{shop: openShop(t, a), random: random}, {shop: openShop(t, a), random: random}}
			for range 30 {
				all[random.IntN(2)].step()
			}
			for i, h := range all {
				h.hear()
				if i == 1 {
					h.damage()
				}
				h.calm()
				h.expectSpan(h.compare(), len(h.underWay), slices.DeleteFunc(slices.Clone(h.want), func(w string) bool { return slices.Contains(h.underWay, w) })...)
				h.reconcile()
				h.expect(h.want...)
			}
		})
	}
}
