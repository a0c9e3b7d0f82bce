package find_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/maintenance/find"
	"triprize/internal/service/sale"
	"triprize/internal/store/apikey"
	"triprize/internal/store/job"
	"triprize/internal/store/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// Whatever a complaint names, its job and what belongs to it are found.
func TestWhateverSomebodyNamesIsFound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(4))
	hold := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(campaign, "noor", fixture.At(4, 4)))
	request := fixture.PurchaseRequestOf(t, campaign, sale.Order{UserID: "mina", Selection: sale.Random(0, 1), Payment: sale.Payment{Method: purchase.External, Reference: "order-1"}})
	request.Key, request.Origin.RequestID = "the first", "complaint-7"
	key, err := apikey.Create(t.Context(), db, apikey.App, request.Client)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Finalize(t, db, request)
	bought, refused := servers.Value[uuid.UUID](t, db, `SELECT id FROM purchases WHERE job_id = $1`, request.ID), request
	refused.ID, refused.Key = uuid.New(), "the second"
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = clock_timestamp() WHERE id = $1`, campaign)
	fixture.Finalize(t, db, refused)
	servers.Exec(t, db, `UPDATE campaigns SET paused_at = NULL WHERE id = $1`, campaign)
	wallet := fixture.Wallet(t, db, "mina", 5000)
	card, ref := fixture.Reserve(t, db, campaign, "otto", 1, time.Hour)
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
		" " + hold.ID.String() + " ":       {"hold " + hold.ID.String()},
		wallet.String():                    {"wallet " + wallet.String()},
		campaign.String():                  {"campaign " + campaign.String()},
		card.String():                      {"payment " + card.String(), "purchase " + card.String(), "refund " + refund.String()},
		ref.ID.String():                    {"job " + ref.ID.String(), "payment " + card.String(), "purchase " + card.String()},
		"pi_7":                             {"payment " + card.String()},
		"re_7":                             {"refund " + refund.String()},
		refund.String():                    {"refund " + refund.String()},
		prefix:                             {"key " + prefix},
		key:                                {"key " + prefix},
		request.Client:                     {"client " + request.Client},
		"nothing":                          nil,
		"\xff":                             nil,
		"00000000-0000-7000-8000-00000000": nil,
		uuid.NewString():                   nil,
	} {
		hits, err := find.Look(t.Context(), db, text)
		if err != nil {
			t.Fatal(text, err)
		}
		var got []string
		for _, h := range hits {
			got = append(got, h.What+" "+h.ID)
			if strings.Contains(h.See, "{}") || !slices.Contains(find.Places(), h.What) || strings.Contains(string(h.Facts), "null") {
				t.Errorf("%+v", h)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
	if hits, err := find.Look(t.Context(), db, refused.ID.String()); err != nil || len(hits) != 1 || hits[0].State != string(job.Failed) || !strings.Contains(string(hits[0].Facts), `"problem":"campaign-paused"`) {
		t.Errorf("the refused one: %+v, %v", hits, err)
	}
}
