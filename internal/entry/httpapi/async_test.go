package httpapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// shop sends a purchase as the app, with headers in pairs.
func shop(s *fleet.System, path, key, body string, header ...string) fleet.Answer {
	return s.Execute(path, fleet.RawJSON(body), append(header, "Idempotency-Key", key)...)
}

func TestAWaitIsGrantedUpToItsLimitAndSaidSo(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Env: []string{"TRIPRIZE_API_MAX_WAIT=2s"}})
	path := "/v1/campaigns/" + s.Campaign(12).String() + "/purchases"
	var requests sync.WaitGroup
	for prefer, applied := range map[string]string{
		"": "", "wait=0": "", "wait=-1": "", "wait=soon": "", "wait": "", "respond-async": "",
		"wait=1": "wait=1", "wait=100": "wait=2", "wait=99999999999": "wait=2", `respond-async, Wait = "1"`: "wait=1",
	} {
		requests.Go(func() {
			begun := time.Now()
			a := shop(s, path, prefer+"!", goodPurchase, "Prefer", prefer)
			took := time.Since(begun)
			if a.Status != http.StatusAccepted || a.State != job.Queued || a.Header.Get("Location") != "/v1/jobs/"+a.ID.String() ||
				a.Header.Get("Retry-After") == "" || a.Header.Get("Preference-Applied") != applied || applied == "wait=1" && took < time.Second {
				t.Errorf("Prefer: %s: %v within %s, %v", prefer, a, took, a.Header)
			}
			a = s.Do(0, s.App, http.MethodGet, a.Header.Get("Location"), map[string]string{"Prefer": prefer}, nil)
			status := http.StatusOK
			if applied != "" {
				status = http.StatusAccepted
			}
			wantAnswer(t, fmt.Sprintf("Prefer: %s on the job", prefer), a, status, job.Queued, having("Retry-After"), valued{"Preference-Applied", applied})
		})
	}
	requests.Wait()
	last := shop(s, path, "last", goodPurchase)
	s.RunWorker()
	var a fleet.Answer
	servers.Eventually(t, "it is final", func() bool {
		a = s.Do(0, s.App, http.MethodGet, "/v1/jobs/"+last.ID.String(), map[string]string{"Prefer": "wait=2"}, nil)
		return a.Status == http.StatusOK
	})
	wantAnswer(t, "in the end", a, job.Succeeded, valued{"Retry-After", ""})
}

func TestWhileJobsWaitTooLongOnlyTheOldOnesAreAnswered(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_ACCEPT_LONGEST_WAIT=1s"}})
	id := s.Campaign(4)
	path := "/v1/campaigns/" + id.String() + "/purchases"
	first := shop(s, path, "first", goodPurchase)
	mustAnswer(t, "", first, 202)
	var late fleet.Answer
	key, accepted := "", 0
	servers.Eventually(t, "new requests are refused", func() bool {
		key = uuid.NewString()
		if late = shop(s, path, key, goodPurchase); late.Status == http.StatusAccepted {
			accepted++
		}
		return late.Status != http.StatusAccepted
	})
	refused(t, "a new one", late, 503, "overloaded")
	wantAnswer(t, "a new one", late, having("Retry-After"))
	awaitStatus(s, states{"overloaded": "critical", "no_worker": "critical"})
	wantAnswer(t, "the key of a job that is there", shop(s, path, "first", goodPurchase), 202, first.ID, isReplayed)
	if draw := s.Post("/v1/campaigns/"+id.String()+"/draw", nil); draw.Status != http.StatusAccepted || draw.Header.Get("Retry-After") != "1" { // another kind, for which nobody waits
		t.Errorf("a draw: %v", draw)
	}
	if a := s.Post("/v1/campaigns/"+id.String()+"/pause", nil); a.Status != http.StatusOK { // it waits for nobody, and the jobs will not sell everything
		t.Errorf("a command: %v", a)
	}
	wantEqual(t, "jobs of accepted requests", count(s, `SELECT count(*) FROM jobs WHERE kind = 'purchase'`), accepted+1)
	s.RunWorker()
	servers.Eventually(t, "the refused key goes through", func() bool {
		return shop(s, path, key, goodPurchase).Status == http.StatusAccepted
	})
}

// Purchases wait for purchases only, and cancellations for cancellations.
func TestABacklogOfCancellationsRefusesCancellationsOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: []string{"TRIPRIZE_ACCEPT_LONGEST_WAIT=1s"}})
	id := s.Campaign(4)
	bought := adopted(s, fixture.Buy(t, s.DB, id, "mina", 0, 1))
	cancel := func() fleet.Answer {
		return s.Do(0, s.App, http.MethodPost, "/v1/purchases/"+bought.String()+"/cancel", map[string]string{"Idempotency-Key": uuid.NewString()}, struct{}{})
	}
	var refused fleet.Answer
	servers.Eventually(t, "new cancellations are refused", func() bool {
		refused = cancel()
		return refused.Status != http.StatusAccepted
	})
	wantAnswer(t, "refused with", refused, 503, coded("overloaded"), having("Retry-After"))
	a := shop(s, "/v1/campaigns/"+id.String()+"/purchases", "k", goodPurchase)
	wantAnswer(t, "a purchase", a, 202, valued{"Retry-After", "1"})
	wantAnswer(t, "a cancellation after it", cancel(), 503)
}

// The queue of payments is judged for cards only, and the others for all.
func TestAQueueOfPaymentsThatIsTooLongRefusesCardsOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1, Env: takingCards})
	id := s.Campaign(3)
	before := orderByCard(s, s.App, id, "u", "before")
	mustAnswer(t, "", before, 202)
	purchase := uuid.New()
	t.Cleanup(func() { exec(s, `DELETE FROM payments WHERE purchase_id = $1`, purchase) }) // before the audit: there is no such purchase
	exec(s, `INSERT INTO payments (purchase_id, campaign_id, amount, currency, payment_method, deadline, latest, kept_since, created_at)
		VALUES ($1, $2, 100, 'JPY', 'pm_1', clock_timestamp(), clock_timestamp(), clock_timestamp(), clock_timestamp() - interval '1 hour')`, purchase, id)
	servers.Eventually(t, "the wait is known", func() bool { return s.Metric(0, `triprize_queue_wait_seconds{kind="payment"}`) > 3000 })
	wantAnswer(t, "by card", orderByCard(s, s.App, id, "u", "after"), 503, coded("overloaded"), valued{"Retry-After", "60"})
	wantAnswer(t, "an earlier request again", orderByCard(s, s.App, id, "u", "before"), 202, before.ID)
	for _, byWallet := range []bool{false, true} {
		wantAnswer(t, fmt.Sprintf("by wallet %t", byWallet), s.Buy(fleet.Order{Campaign: id, User: "u", ByWallet: byWallet}), 202)
	}
	exec(s, `DELETE FROM payments WHERE purchase_id = $1`, purchase)
	s.AwaitMetric(0, `triprize_queue_wait_seconds{kind="payment"}`, 0)
	wantAnswer(t, "the same request later", orderByCard(s, s.App, id, "u", "after"), 202)
}

// jobsOf returns how many jobs there are of a campaign.
func jobsOf(s *fleet.System, id uuid.UUID) int {
	return servers.Value[int](s.T, s.DB, `SELECT count(*) FROM jobs WHERE campaign_id = $1 AND kind = 'purchase'`, id)
}

// emptyRedis deletes everything that the system has in Redis.
func emptyRedis(s *fleet.System) {
	s.T.Helper()
	for _, key := range servers.Keys(s.T, s.Redis, s.Settings.Redis.Namespace+":*") {
		servers.NoError(s.T, s.Redis.Del(s.T.Context(), key).Err())
	}
}

// cancelNow cancels a campaign that has sold nothing.
func cancelNow(s *fleet.System, id uuid.UUID) {
	s.T.Helper()
	var b pgx.Batch
	campaign.QueueCancel(&b, id, "operator:ops", "a test", false)
	servers.NoError(s.T, s.DB.SendBatch(s.T.Context(), &b).Close())
}

// A campaign closes. From then on a purchase with a new key is refused without a job, at an
// api that has sold it as well as at one that has never heard of it, and with the code that its
// job would have. A key that was used before has its job, and no other request may have the key;
// also when Redis has forgotten it.
func TestAPurchaseOfAClosedCampaignIsRefusedAtTheDoor(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{APIs: 2, Workers: -1, Schedulers: -1})
	settings, clock := servers.NewClock(t, s.Settings)
	later := servers.Pool(t, settings)
	drawnAtEnd := fixture.Campaign(t, s.DB, fixture.DrawnAtEnd(3, time.Hour))
	inTime := make(map[uuid.UUID]string) // jobs, and how they end
	for name, one := range map[string]struct {
		campaign uuid.UUID
		end      func(id uuid.UUID)
		code     string
	}{
		"sold out":  {s.Campaign(3), func(id uuid.UUID) { fixture.SellOut(t, s.DB, id) }, "sold-out"},
		"cancelled": {s.Campaign(3), func(id uuid.UUID) { cancelNow(s, id) }, "campaign-not-active"},
		"drawn at its end": {drawnAtEnd, func(id uuid.UUID) {
			clock.MoveOn(2 * time.Hour)
			if end, err := fixture.Seller(later).EndSale(t.Context(), id); err != nil || !end.Ended {
				t.Fatal(end, err)
			}
		}, "campaign-not-active"},
	} {
		order := func(api int, key, user string) fleet.Answer {
			return s.Buy(fleet.Order{Campaign: one.campaign, API: api, Key: key, User: user, Wait: key == ""})
		}
		used := order(0, name, "mina")
		mustAnswer(t, fmt.Sprintf("%s: on sale", name), used, 202)
		one.end(one.campaign)
		emptyRedis(s)
		before := jobsOf(s, one.campaign)
		for api := range 2 {
			for range 2 { // the second time the api knows
				wantAnswer(t, fmt.Sprintf("%s: its key again", name), order(api, name, "mina"), 202, used.ID, isReplayed)
				wantAnswer(t, fmt.Sprintf("%s: its key with another body", name), order(api, name, "otto"), 422, coded("idempotency-key-reused"))
				refused(t, fmt.Sprintf("%s: a new key", name), order(api, "", "otto"), 409, one.code)
			}
		}
		wantEqual(t, fmt.Sprintf("%s: jobs after", name), jobsOf(s, one.campaign), before)
		inTime[used.ID] = one.code
	}
	wantEqual(t, "refusals", s.Metric(0, `triprize_purchases_refused_total{code="campaign-not-active"}`), 4)
	s.RunWorker()
	for id, code := range inTime {
		wantAnswer(t, "a job that was accepted before the end", s.AwaitJob(0, id), job.Failed, coded(code))
	}
}

// While the last positions wait for their payment, they may become free again: jobs decide.
func TestACampaignWithReservationsIsNotClosed(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Schedulers: -1})
	id := s.Campaign(2)
	fixture.Reserve(t, s.DB, id, "mina", 3, time.Hour)
	wantAnswer(t, "", s.Buy(fleet.Order{Campaign: id, User: "otto", Wait: true}), 200, job.Failed, coded("none-available"))
}

// What a process knows of a closed campaign decides nothing: after a failover or a restore
// Postgres may have lost the end.
func TestACampaignThatSellsAgainAfterARestoreSells(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Schedulers: -1})
	id := s.Campaign(3)
	cancelNow(s, id)
	mustAnswer(t, "", s.Buy(fleet.Order{Campaign: id, User: "mina"}), 409)
	err := postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `SET LOCAL session_replication_role = replica`) // no transaction of ours may do this: without the triggers
		servers.Exec(t, tx, `UPDATE campaigns SET state = 'active', cancelled_at = NULL, cancelled_by = NULL, cancel_reason = NULL WHERE id = $1`, id)
		return nil
	})
	servers.NoError(t, err)
	for range 2 {
		wantAnswer(t, "", s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}), job.Succeeded)
	}
}
