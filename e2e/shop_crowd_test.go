//go:build web

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const (
	shopBuyers = 200
	shopSeats  = 80
)

// rush is a crowd that buys at the example shop.
type rush struct {
	*hall
	t *testing.T
	s *fleet.System

	turns, sales, gaveUp atomic.Int64
	awaited, declines    atomic.Int64 // what buyers were asked for; of that, another card
}

// purses are the cards of a buyer, one after the other. Where no more is left the buyer lets the seat
// go. Their turn decides which one a buyer has, so that each of them is needed for 80 sales.
var purses = [][]string{
	{"pm_card_visa"},
	{"pm_card_threeDSecure2Required"},
	{"pm_card_chargeDeclined", "pm_card_visa"},
	{"pm_card_chargeDeclinedInsufficientFunds", "pm_card_threeDSecureRequiredChargeDeclined", "pm_card_threeDSecure2Required"},
	append(slices.Repeat([]string{"pm_card_chargeDeclined"}, 5), "pm_card_visa"), // more than a purchase takes: the hold is bought again
	{"pm_card_chargeDeclined"},
}

// told is an answer of the shop.
type told struct {
	status   int
	ID       string // of a hold
	State    string
	Purchase string
	Seats    []string
	Code     string
	Hold     string // that keeps the seats again
	Action   *struct{ Type, URL string }
}

// ask asks the shop for an action as its page does: again, with the same key, until there is an answer.
func (r *rush) ask(user, action string, asked map[string]any) (answer told) {
	asked["key"] = uuid.NewString()
	body, err := json.Marshal(asked)
	if err != nil {
		panic(err)
	}
	for r.t.Context().Err() == nil {
		request, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/"+action, bytes.NewReader(body))
		if err != nil {
			panic(err)
		}
		request.Header.Set("Cookie", "user="+user)
		a := fleet.Send(request)
		if a.Err != nil || a.Status >= http.StatusInternalServerError || a.Status == http.StatusTooManyRequests {
			time.Sleep(50 * time.Millisecond) // as the page does
			continue
		}
		answer = fleet.As[told](r.t, a)
		answer.status = a.Status
		return answer
	}
	return answer
}

// free returns the seats that can be held now, and whether one can become free: it is not sold.
func (r *rush) free() (free []map[string]int, open bool) {
	var board struct {
		Positions []struct {
			Layer, Column int
			State         string
		}
	}
	a := r.s.Do(0, r.s.App, http.MethodGet, "/v1/campaigns/"+r.campaign.String()+"/positions", nil, nil)
	if a.Status != http.StatusOK || json.Unmarshal(a.Body, &board) != nil {
		return nil, true // the api was killed
	}
	for _, p := range board.Positions {
		open = open || p.State != "sold"
		if p.State == "available" {
			free = append(free, map[string]int{"layer": p.Layer, "column": p.Column})
		}
	}
	return free, open
}

// buy holds a seat and pays for it. It returns the purchase and its seats, and nothing when the hall is
// sold, or when the buyer has given up.
func (r *rush) buy(n int) (purchase string, seats []string) {
	user, dice := fmt.Sprintf("buyer-%d", n), rand.New(rand.NewPCG(uint64(n), 0))
	for r.t.Context().Err() == nil {
		free, open := r.free()
		if !open {
			return "", nil
		}
		if len(free) == 0 {
			time.Sleep(50 * time.Millisecond) // a seat of another may become free
			continue
		}
		hold := r.ask(user, "hold", map[string]any{"seats": []map[string]int{free[dice.IntN(len(free))]}})
		if hold.status != http.StatusOK {
			time.Sleep(50 * time.Millisecond) // another was faster
			continue
		}
		switch end := r.pay(user, hold.ID, purses[int(r.turns.Add(1))%len(purses)]); {
		case end.State == "paid":
			r.disturb(r.sales.Add(1))
			return end.Purchase, end.Seats
		case end.State == "action":
			if r.ask(user, "cancel", map[string]any{"purchase": end.Purchase}).State == "succeeded" {
				r.gaveUp.Add(1)
			}
			return "", nil
		case end.status == http.StatusOK || end.status == http.StatusConflict: // too late
		default:
			r.t.Errorf("%s: %+v", user, end)
			return "", nil
		}
	}
	return "", nil
}

// pay pays for a held seat with one card after the other, and returns what the last one led to.
func (r *rush) pay(user, hold string, cards []string) (end told) {
	asked := map[string]any{"hold": hold}
	for _, card := range cards {
		asked["card"] = card
		if end = r.ask(user, "pay", asked); end.State == "action" && end.Action.Type == "redirect" {
			r.awaited.Add(1)
			if response, err := http.PostForm(end.Action.URL, url.Values{"outcome": {"succeed"}}); err == nil {
				_ = response.Body.Close()
			}
			end = r.ask(user, "outcome", map[string]any{"purchase": end.Purchase})
		}
		if good := !strings.Contains(card, "Declined"); good && end.State == "action" || !good && end.State == "paid" {
			r.t.Errorf("%s: %s: %+v", user, card, end)
		}
		switch {
		case end.State == "action":
			r.awaited.Add(1)
			r.declines.Add(1)
			asked = map[string]any{"purchase": end.Purchase}
		case end.Code == "payment-declined" && end.Hold != "":
			asked = map[string]any{"hold": end.Hold}
		default:
			return end
		}
	}
	return end
}

// disturb kills the api or the worker after each tenth sale.
func (r *rush) disturb(sales int64) {
	switch sales % 20 {
	case 5:
		r.s.APIs[0].Kill()
	case 15:
		r.s.Workers[0].Kill()
	}
}

// 200 buyers want 80 seats while processes are killed, and declined cards are followed by others: each seat is sold once, what each buyer was told is what
// the server has, the provider has the money of the seats, and the shop handles each event once.
func TestACrowdBuysTheExampleShopOut(t *testing.T) {
	t.Parallel()
	s := cardSystem(t, fleet.Options{Restart: 200 * time.Millisecond}, "TRIPRIZE_WEBHOOKS_ALLOW_NETWORKS=127.0.0.0/8",
		"TRIPRIZE_SWEEPS_DUE_ITEMS_INTERVAL=100ms", "TRIPRIZE_HOLDS_COOL_DOWN=0s")
	r := &rush{hall: openShop(t, s.URLs[0], s.App, s.Operator), t: t, s: s}
	var mu sync.Mutex
	bought := make(map[string]string) // seat: purchase
	fleet.Together(shopBuyers, func(n int) {
		purchase, seats := r.buy(n)
		mu.Lock()
		defer mu.Unlock()
		for _, seat := range seats {
			if other := bought[seat]; other != "" {
				t.Errorf("%s is of %s and of %s", seat, other, purchase)
			}
			bought[seat] = purchase
		}
	})
	if len(bought) != shopSeats || r.declines.Load() == 0 || r.gaveUp.Load() == 0 {
		t.Fatalf("%d seats were bought, %d cards declined, %d buyers gave up", len(bought), r.declines.Load(), r.gaveUp.Load())
	}
	s.AwaitDrawn(r.campaign)
	kept, money := r.kept()
	if !maps.Equal(kept, bought) {
		t.Errorf("the buyers were told\n%v\nand the server has\n%v", bought, kept)
	}
	if got := s.Sandbox.Kept("jpy"); got != money || money != 10*(9000+8000+7000+6000+5000+4000+3000+2000) {
		t.Errorf("the provider has %d, the purchases cost %d", got, money)
	}
	r.expectEvents()
}

// kept returns the seats and purchases that the server has, and what they cost.
func (r *rush) kept() (seats map[string]string, money int64) {
	r.t.Helper()
	seats = make(map[string]string)
	var purchase, seat string
	var price int64
	rows, err := r.s.DB.Query(r.t.Context(), `
		SELECT p.id::text, format('Row %s %s', chr(ascii('A') + i.layer - 1), i.col), i.price
		FROM purchases p JOIN purchase_items i ON i.purchase_id = p.id WHERE p.campaign_id = $1 AND p.state = 'completed'`, r.campaign)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&purchase, &seat, &price}, func() error {
			seats[seat] = purchase
			money += price
			return nil
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return seats, money
}

// expectEvents waits until every event is delivered, and wants that the shop has handled each once.
func (r *rush) expectEvents() {
	r.t.Helper()
	servers.Eventually(r.t, "every event is delivered", func() bool {
		return !servers.Value[bool](r.t, r.s.DB, `SELECT EXISTS (SELECT FROM webhook_deliveries WHERE state <> 'delivered')`)
	})
	want := servers.Value[[]string](r.t, r.s.DB, `SELECT array_agg(e.id::text || ' ' || e.type) FROM webhook_deliveries d JOIN webhook_events e ON e.id = d.event_id`)
	var handled []string
	types := make(map[string]int)
	for _, one := range r.events() {
		handled = append(handled, one.Event.String()+" "+one.Type)
		types[one.Type]++
	}
	slices.Sort(want)
	slices.Sort(handled)
	if !slices.Equal(handled, want) || types["purchase.completed"] != shopSeats || types["purchase.awaiting_action"] != int(r.awaited.Load()) {
		r.t.Errorf("%d events are handled, %v, and the server has sent %d; buyers were awaited %d times:\n%s", len(handled), types, len(want), r.awaited.Load(), strings.Join(handled, "\n"))
	}
}
