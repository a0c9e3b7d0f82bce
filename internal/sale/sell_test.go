package sale_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// An order and its outcome: see expect.
type order struct {
	user string
	pay  purchase.PaymentMethod
	what inventory.Selection
	want string
}

// A holder holds positions, and returns the selection of the hold.
type holder func(user string, over bool, what inventory.Selection) inventory.Selection

func adjacent(layer, n int) inventory.Selection {
	return inventory.Selection{Layer: layer, Quantity: n, Adjacent: true}
}

// Each sees what those before it have got. They are decided in the order of arrival, not of delivery.
func TestOrdersOfABatchAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	const ext, byWallet, card = purchase.External, purchase.Wallet, purchase.Card
	random, chosen := fixture.Random, fixture.Chosen
	one := at(1, 1)
	for name, c := range map[string]struct {
		size, limit int
		orders      func(hold holder) []order
	}{
		"every kind of outcome": {4, 3, func(holder) []order {
			return []order{{"a", ext, random(4, 1), "any 1"}, {"a", ext, random(2, 2), "2,1 2,2"},
				{"a", ext, random(0, 1), "purchase-limit-exceeded"}, {"b", ext, random(2, 1), "sold-out"}, {"b", ext, random(9, 1), "invalid-request /selection/layer"},
				{"b", ext, chosen(one, at(3, 4)), "invalid-request /selection/positions/1"}, {"b", ext, random(3, 3), "3,1 3,2 3,3"}}
		}},
		"what can never be, and all there is": {4, 0, func(holder) []order {
			return []order{{"a", ext, random(1, 2), "invalid-request /selection/quantity"}, {"a", ext, random(0, 11), "invalid-request /selection/quantity"},
				{"b", ext, random(4, 4), "4,1 4,2 4,3 4,4"}, {"b", ext, random(0, 6), "any 6"}, {"c", ext, random(0, 1), "sold-out"}}
		}},
		"chosen and random": {4, 0, func(holder) []order {
			return []order{{"a", ext, chosen(at(3, 3), at(3, 1)), "3,1 3,3"}, {"b", ext, random(3, 1), "3,2"},
				{"c", ext, chosen(at(2, 1), at(3, 2)), "position-taken /selection/positions/1"}, {"d", ext, random(3, 1), "sold-out"}, {"e", ext, random(2, 2), "2,1 2,2"},
				{"f", ext, chosen(at(4, 4), at(2, 2), one, at(3, 3)), "position-taken /selection/positions/1 /selection/positions/3"}, // what it did not get is free
				{"g", ext, chosen(one, at(4, 4)), "1,1 4,4"}, {"h", ext, random(0, 3), "4,1 4,2 4,3"}}
		}},
		"side by side": {7, 0, func(holder) []order {
			return []order{{"a", ext, chosen(at(7, 4)), "7,4"}, {"b", ext, adjacent(7, 3), "7,1 7,2 7,3"}, {"c", ext, chosen(at(7, 3)), "position-taken /selection/positions/0"},
				{"d", ext, random(7, 3), "7,5 7,6 7,7"}, {"e", ext, adjacent(7, 1), "sold-out"}, {"f", ext, adjacent(0, 2), "2,1 2,2"}, {"g", ext, adjacent(0, 7), "none-available"}}
		}},
		"the limit counts what is held, sold and reserved": {5, 4, func(hold holder) []order {
			hold("a", true, chosen(at(5, 1), at(5, 2)))
			held := hold("a", false, chosen(at(4, 1), at(4, 2)))
			return []order{{"a", ext, random(3, 1), "any 1"}, {"a", ext, chosen(at(2, 1), at(2, 2)), "purchase-limit-exceeded"}, {"a", ext, held, "4,1 4,2"}, {"a", ext, chosen(at(5, 1)), "5,1"},
				{"a", ext, random(0, 1), "purchase-limit-exceeded"}, {"b", ext, chosen(at(2, 1), at(2, 2), at(5, 2), one), "1,1 2,1 2,2 5,2"},
				{"c", card, random(0, 4), "queued"}, {"c", card, random(0, 1), "purchase-limit-exceeded"}}
		}},
		"the number of a draft that was published in another shape": {4, 0, func(holder) []order {
			same, moved := chosen(at(2, 1)), chosen(at(3, 1), at(2, 2)) // 3/1 is number 4
			same.Numbers, moved.Numbers = []int{2}, []int{5, 0}
			return []order{{"a", ext, moved, "invalid-request /selection/positions/0/number"}, {"b", ext, same, "2,1"}}
		}},
		"a hold": {4, 0, func(hold holder) []order {
			h, others := hold("a", false, chosen(at(3, 1), at(3, 2))), hold("o", false, chosen(at(2, 1)))
			return []order{{"b", ext, chosen(one, at(3, 1)), "position-taken /selection/positions/1"}, {"c", ext, random(3, 2), "none-available"}, {"b", ext, h, "not-found"},
				{"a", ext, h, "3,1 3,2"}, {"a", ext, h, "state-conflict"}, {"d", ext, random(3, 1), "3,3"}, {"a", ext, chosen(at(3, 2)), "position-taken /selection/positions/0"},
				{"a", ext, fixture.FromHold(uuid.New()), "not-found"}, {"o", ext, others, "2,1"}}
		}},
		"what a wallet has": {6, 0, func(holder) []order {
			return []order{{"899", byWallet, random(4, 1), "any 1"}, {"100", byWallet, random(1, 1), "1,1"}, {"899", byWallet, random(6, 1), "insufficient-funds"}, // 600 of 499
				{"nobody", byWallet, random(4, 1), "insufficient-funds"}, {"899", byWallet, random(4, 1), "any 1"}, {"899", byWallet, random(4, 1), "insufficient-funds"}, // 400 of 99
				{"899", ext, random(4, 1), "any 1"}, {"100", byWallet, random(0, 1), "insufficient-funds"}}
		}},
		"what is not paid is sold to the next": {4, 1, func(holder) []order {
			return []order{{"99", byWallet, chosen(one), "insufficient-funds"}, {"1000", byWallet, chosen(one), "1,1"}, {"late", byWallet, chosen(one), "position-taken /selection/positions/0"},
				{"1000", byWallet, random(4, 1), "purchase-limit-exceeded"}, {"99", ext, random(0, 1), "any 1"}} // the refusal has used up no limit
		}},
		"cards reserve": {4, 0, func(hold holder) []order {
			h := hold("h", false, chosen(at(2, 1), at(2, 2)))
			return []order{{"c", card, chosen(one), "queued"}, {"d", card, chosen(one), "position-taken /selection/positions/0"}, {"h", card, h, "queued"}, {"h", card, h, "state-conflict"},
				{"e", card, random(0, 7), "queued"}, {"f", ext, random(0, 1), "none-available"}, {"f", card, random(1, 1), "none-available"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 { // ranks are random
				db := servers.DB(t)
				draft := fixture.Draft(c.size)
				if c.limit > 0 {
					draft.PurchaseLimit = &c.limit
				}
				id, service := fixture.Campaign(t, db, draft), fixture.Holds(t, db, nil, nil)
				var over []inventory.Hold
				orders := c.orders(func(user string, isOver bool, what inventory.Selection) inventory.Selection {
					h := fixture.Hold(t, service, fixture.HoldRequest(id, user, what.Positions...))
					if isOver {
						over = append(over, h)
					}
					return fixture.FromHold(h.ID)
				})
				for _, h := range over {
					fixture.EndHold(t, db, h)
				}
				var requests []job.Request
				var want []string
				for i, o := range orders {
					var balance money.Amount
					if n, _ := fmt.Sscan(o.user, &balance); n == 1 && !slices.ContainsFunc(orders[:i], func(before order) bool { return before.user == o.user }) {
						fixture.Wallet(t, db, o.user, balance)
					}
					pay := sale.Payment{Method: o.pay}
					if o.pay == card {
						pay.PaymentMethod = "pm_1"
					}
					requests, want = append(requests, fixture.PurchaseRequestOf(t, id, sale.Order{UserID: o.user, Selection: o.what, Payment: pay})), append(want, o.want)
				}
				refs := fixture.Accept(t, db, requests...)
				delivered := slices.Clone(refs)
				slices.Reverse(delivered)
				report, err := fixture.Seller(db).Sell(t.Context(), delivered, job.SkipLocked)
				if err != nil || len(report.Outcomes)+len(report.Due) != len(refs) || len(report.Busy) != 0 {
					t.Fatalf("%+v, %v", report, err)
				}
				expect(t, name, jobsOf(t, db, refs), want...)
				fixture.Sound(t, db)
			}
		})
	}
}

func TestRandomPositionsComeInAnUnpredictableOrder(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	sold := func() (positions []string) {
		id := fixture.Campaign(t, db, fixture.Draft(20))
		requests := make([]job.Request, 12)
		for i := range requests {
			requests[i] = fixture.PurchaseRequest(t, id, "a", 20, 1)
		}
		for _, j := range fixture.Complete(t, db, requests...) {
			positions = append(positions, fmt.Sprintf("%02d", resultOf(t, j).Positions[0].Column))
		}
		return positions
	}
	if a, b := sold(), sold(); slices.Equal(a, b) || slices.IsSorted(a) || slices.IsSorted(b) {
		t.Errorf("twelve sales of two campaigns: %v and %v", a, b)
	}
}

func jobsOf(t *testing.T, db *pgxpool.Pool, refs []job.Ref) (jobs []job.Job) {
	t.Helper()
	for _, ref := range refs {
		jobs = append(jobs, fixture.Job(t, db, ref.ID))
	}
	return jobs
}

func TestTheLastPositionBeginsTheDraw(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	draft := fixture.Draft(3)
	id := fixture.Campaign(t, db, draft)
	fixture.Wallet(t, db, "rich", 1000)
	if ref := fixture.Sell(t, db, id, 5); ref.ID != uuid.Nil {
		t.Fatal("a draw was asked for with one position left")
	}
	last := fixture.Free(t, db, id)[0]
	order := func(user string) job.Request {
		r := fixture.PurchaseRequestOf(t, id, sale.Order{UserID: user, Selection: fixture.Random(0, 1), Payment: sale.Payment{Method: purchase.Wallet}})
		r.Origin = job.Origin{RequestID: "of " + user, Traceparent: "trace of " + user}
		return r
	}
	refs := fixture.Accept(t, db, order("poor"), order("rich"), order("rich"))
	report := sell(t, fixture.Seller(db), refs...)
	if report.Sold != 1 || len(report.Messages) != 1 || len(report.Outcomes) != 3 {
		t.Fatalf("%+v", report)
	}
	expect(t, "the last one", jobsOf(t, db, refs), "insufficient-funds", fmt.Sprintf("%d,%d", last.Layer, last.Column), "sold-out")
	for _, o := range report.Outcomes { // what the log says about them
		if !strings.HasPrefix(o.Origin.RequestID, "of ") || o.Kind != job.KindPurchase || o.CampaignID != id || o.Attempts != 1 || o.Took <= 0 || (o.Problem == nil) != (o.PurchaseID != uuid.Nil) {
			t.Errorf("%+v", o)
		}
	}
	expectState(t, db, id, "drawing")
	j := fixture.Job(t, db, report.Messages[0].Jobs[0].ID)
	if j.Kind != job.KindDraw || j.Client != job.System || j.Key != "lottery-draw-"+id.String() || j.Origin != (job.Origin{RequestID: "of rich", Traceparent: "trace of rich"}) {
		t.Errorf("the draw job is %+v", j)
	}
	fixture.Sound(t, db)
}

// A hold is of its user and campaign, and what is refused leaves it as it is.
func TestAHoldThatIsNotBoughtStaysActive(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
	elsewhere := fixture.HeldRequest(t, id, "a", h.ID)
	elsewhere.Client = "kiosk"
	expect(t, "of others", fixture.Complete(t, db, fixture.HeldRequest(t, other, "a", h.ID), fixture.HeldRequest(t, id, "b", h.ID), elsewhere), "not-found", "not-found", "not-found")
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, id)
	expect(t, "in a pause", fixture.Complete(t, db, fixture.HeldRequest(t, id, "a", h.ID)), "campaign-paused")
	if now := fixture.HoldNow(t, db, h.ID); now.State != inventory.HoldActive {
		t.Errorf("it is %+v", now)
	}
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = NULL WHERE id = $1`, id)
	expect(t, "bought", fixture.Complete(t, db, fixture.HeldRequest(t, id, "a", h.ID)), "3,1")
	if now := fixture.HoldNow(t, db, h.ID); now.State != inventory.HoldUsed || now.PurchaseID == nil || now.EndedAt == nil {
		t.Errorf("it is %+v", now)
	}
	fixture.Sound(t, db)
}

func TestHoldsOfABusyCampaignAreLeftAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	busy, idle := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, nil)
	theirs, ours := fixture.Hold(t, service, fixture.HoldRequest(busy, "a", at(1, 1))), fixture.Hold(t, service, fixture.HoldRequest(idle, "a", at(1, 1)))
	fixture.EndHold(t, db, theirs)
	fixture.EndHold(t, db, ours)
	refs := fixture.Accept(t, db, fixture.ChosenRequest(t, busy, "b", at(1, 1)), fixture.ChosenRequest(t, idle, "b", at(1, 1)))
	unlock := fixture.LockCampaign(t, db, busy)
	report, err := fixture.Seller(db).Sell(t.Context(), refs, job.SkipLocked)
	if err != nil || len(report.Busy) != 1 || report.HoldsReclaimed != 1 || fixture.HoldNow(t, db, theirs.ID).EndedAt != nil || fixture.HoldNow(t, db, ours.ID).EndedAt == nil {
		t.Errorf("%+v, %v", report, err)
	}
	unlock()
	if report := sell(t, fixture.Seller(db), refs...); report.HoldsReclaimed != 1 || report.Sold != 1 {
		t.Errorf("afterwards: %+v", report)
	}
	fixture.Sound(t, db)
}

// A batch reads once which holds are over. A hold that was not over then is bought
// wholly, however long the rest takes. One that was over is not bought, even if it
// is extended meanwhile.
func TestAHoldIsBoughtWhollyOrNotAtAllWhenItEndsInTheMiddle(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, nil, nil)
	due := fixture.Hold(t, service, fixture.HoldRequest(id, "due", at(1, 1), at(2, 2)))
	last := fixture.Hold(t, service, fixture.HoldRequest(id, "last", at(3, 1), at(3, 2)))
	refs := fixture.Accept(t, db, fixture.HeldRequest(t, id, "last", last.ID), fixture.HeldRequest(t, id, "due", due.ID),
		fixture.ChosenRequest(t, id, "other", at(3, 1)), fixture.ChosenRequest(t, id, "other", at(2, 2)))
	fixture.EndHold(t, db, due)
	unlock := fixture.LockRows(t, db, `holds WHERE id = $1`, due.ID) // the batch wants to end it
	ended := make(chan sale.Report, 1)
	go func() { ended <- sell(t, fixture.Seller(db), refs...) }()
	servers.AwaitBlocked(t, db, 1)
	fixture.EndHoldMeanwhile(t, db, last)
	unlock()
	if got := <-ended; got.HoldsUsed != 1 || got.HoldsReclaimed != 1 || got.Sold != 3 {
		t.Errorf("got %+v", got)
	}
	expect(t, "one in its last moment, one that is over, and parts of them", jobsOf(t, db, refs), "3,1 3,2", "hold-expired", "position-taken /selection/positions/0", "2,2")
	fixture.Sound(t, db)
}

// The sale does not look for an earlier payment of its job, as there can be none: the ledger
// refuses it.
func TestAJobIsPaidOnce(t *testing.T) {
	db, id := campaignOn(t, 4)
	mina := fixture.Wallet(t, db, "mina", 1000)
	refs := fixture.Accept(t, db, fixture.WalletRequest(t, id, "mina", 1, 1))
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		unit, err := wallet.Open(t.Context(), tx, wallet.ReadSet{Wallets: []uuid.UUID{mina}}, postgres.WaitForLocks)
		if err != nil {
			return err
		}
		if _, err := unit.Pay(mina, wallet.Movement{Amount: 300, Reference: wallet.Reference{Text: "purchase:" + refs[0].ID.String()}, PurchaseID: uuid.New()}); err != nil {
			return err
		}
		return unit.Write(t.Context(), tx)
	})
	servers.NoError(t, err)
	changed := fixture.Watch(t, db)
	if report, err := fixture.Seller(db).Sell(t.Context(), refs, job.SkipLocked); !wallet.Lost(err) || report.Sold != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	changed(``)
}

// An update whose row does not fit into its page, or changes what an index names, writes to
// every index of the table.
func TestCompletingJobsWritesToNoIndex(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, order := range map[string]sale.Order{
		"one position": {Selection: fixture.Random(0, 1)},
		"four, and metadata": {Selection: fixture.Random(0, 4),
			Metadata: metadata.Map{"order": strings.Repeat("x", 200), "channel": strings.Repeat("y", 200)}},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(20))
		requests := make([]job.Request, 50)
		order.UserID, order.Payment = "user-"+strings.Repeat("u", 32), sale.Payment{Method: purchase.External}
		for i := range requests {
			requests[i] = fixture.PurchaseRequestOf(t, id, order)
		}
		refs := fixture.Accept(t, db, requests...)
		updates, hot := 0, 0
		seller := sale.NewSeller(spied{Beginner: db, commits: func(tx pgx.Tx) {
			err := tx.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'jobs'`).Scan(&updates, &hot)
			if err != nil {
				t.Error(err)
			}
		}}, time.Hour, fixture.Reservations)
		if _, err := seller.Sell(t.Context(), refs, job.SkipLocked); err != nil {
			t.Fatal(err)
		}
		if updates < len(refs) || hot != updates { // some of earlier transactions of the session may be counted, too
			t.Errorf("%s: %d of %d updates for %d jobs wrote to no index", name, hot, updates, len(refs))
		}
	}
}
