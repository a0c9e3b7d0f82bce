package lookup

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/key"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// Whatever a complaint names, its job and what belongs to it are found.
func TestWhateverSomebodyNamesIsFound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	onSale := fixture.Campaign(t, db, fixture.Draft(4))
	hold := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(onSale, "noor", fixture.At(4, 4)))
	request := fixture.PurchaseRequestOf(t, onSale, sale.Order{UserID: "mina", Selection: fixture.Random(0, 1), Payment: sale.Payment{Method: purchase.External, Reference: "order-1"}})
	request.Key, request.Origin.RequestID = "the first", "complaint-7"
	key, err := key.Create(t.Context(), db, key.App, request.Client)
	servers.NoError(t, err)
	spaced := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(onSale, " noor", fixture.At(4, 3)))
	fixture.Complete(t, db, request)
	bought, refused := request.ID, request
	refused.ID, refused.Key = uuid.New(), "the second"
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, onSale)
	fixture.Complete(t, db, refused)
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = NULL WHERE id = $1`, onSale)
	wallet := fixture.Wallet(t, db, "mina", 5000)
	card, _ := fixture.Reserve(t, db, onSale, "otto", 1, time.Hour)
	servers.Exec(t, db, `UPDATE payments SET intent_id = 'pi_7' WHERE purchase_id = $1`, card)
	refund := uuid.New()
	servers.Exec(t, db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, provider_id)
		SELECT $1, id, 1, campaign_id, user_id, 'card', amount, currency, 'cancelled', 'failed', 're_7' FROM purchases WHERE id = $2`, refund, card)

	prefix := strings.Split(key, "_")[1]
	for text, want := range map[string][]string{
		request.ID.String():                {"job " + request.ID.String(), "purchase " + bought.String()},
		request.Key:                        {"job " + request.ID.String()},
		"the second":                       {"job " + refused.ID.String()},
		"order-1":                          {"job " + request.ID.String(), "job " + refused.ID.String(), "purchase " + bought.String()},
		"complaint-7":                      {"job " + request.ID.String(), "job " + refused.ID.String()},
		"mina":                             {"job " + request.ID.String(), "job " + refused.ID.String(), "purchase " + bought.String(), "wallet " + wallet.String()},
		"noor":                             {"hold " + hold.ID.String(), "job " + servers.Value[string](t, db, `SELECT id FROM jobs WHERE user_id = 'noor'`)},
		hold.ID.String():                   {"hold " + hold.ID.String()},
		" noor":                            {"hold " + spaced.ID.String(), "job " + servers.Value[string](t, db, `SELECT id FROM jobs WHERE user_id = ' noor'`)}, // not those of noor
		"noor ":                            nil,
		" " + hold.ID.String() + " ":       nil, // somebody may have such an id
		"{" + hold.ID.String() + "}":       nil,
		"tp_" + prefix[1:]:                 nil,
		wallet.String():                    {"wallet " + wallet.String()},
		onSale.String():                    {"campaign " + onSale.String()},
		card.String():                      {"job " + card.String(), "payment " + card.String(), "purchase " + card.String(), "refund " + refund.String()},
		"pi_7":                             {"payment " + card.String()},
		"re_7":                             {"refund " + refund.String()},
		refund.String():                    {"refund " + refund.String()},
		prefix:                             {"key " + prefix},
		key:                                {"key " + prefix},
		" " + key + "\n":                   {"key " + prefix}, // whose secret no statement has
		request.Client:                     {"client " + request.Client},
		"nothing":                          nil,
		"\xff":                             nil,
		"00000000-0000-7000-8000-00000000": nil,
		uuid.NewString():                   nil,
	} {
		hits, err := Find(t.Context(), db, text)
		if err != nil {
			t.Fatal(text, err)
		}
		var got []string
		for _, h := range hits {
			got = append(got, h.What+" "+h.ID)
			if strings.Contains(h.See, "{}") || !slices.Contains(Kinds(), h.What) || strings.Contains(string(h.Facts), "null") {
				t.Errorf("%+v", h)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
	if hits, err := Find(t.Context(), db, refused.ID.String()); err != nil || len(hits) != 1 || hits[0].State != string(job.Failed) || !strings.Contains(string(hits[0].Facts), `"problem":"campaign-paused"`) {
		t.Errorf("the refused one: %+v, %v", hits, err)
	}
}

// Who draws a campaign, and since when, is found without SQL.
func TestTheWorkerThatDrawsACampaignIsFound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.SellOut(t, db, id)
	claimed := func() string {
		t.Helper()
		hits, err := Find(t.Context(), db, id.String())
		for _, h := range hits {
			if h.What == "draw" {
				return string(h.Facts)
			}
		}
		t.Fatal(hits, err)
		return ""
	}
	if facts := claimed(); strings.Contains(facts, "claimed") {
		t.Errorf("nobody draws it: %s", facts)
	}
	e, ok, err := campaign.Claim(t.Context(), db, id, "host/4711/XYZ", time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if facts := claimed(); !strings.Contains(facts, `"claimed":`) || !strings.Contains(facts, `"claimed_by":"host/4711/XYZ"`) {
		t.Errorf("a worker draws it: %s", facts)
	}
	servers.NoError(t, e.Release(t.Context(), db))
	if facts := claimed(); strings.Contains(facts, "claimed") {
		t.Errorf("nobody draws it any more: %s", facts)
	}
}
