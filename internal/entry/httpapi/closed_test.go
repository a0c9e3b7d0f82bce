package httpapi_test

import (
	"net/http"
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

// jobsOf returns how many jobs there are of a campaign.
func jobsOf(s *fleet.System, id uuid.UUID) int {
	return servers.Value[int](s.T, s.DB, `SELECT count(*) FROM jobs WHERE campaign_id = $1 AND kind = 'purchase'`, id)
}

// emptyRedis deletes everything that the system has in Redis.
func emptyRedis(s *fleet.System) {
	s.T.Helper()
	keys, err := s.Redis.Keys(s.T.Context(), s.Settings.Redis.Namespace+":*").Result()
	if err == nil && len(keys) > 0 {
		err = s.Redis.Del(s.T.Context(), keys...).Err()
	}
	if err != nil {
		s.T.Fatal(err)
	}
}

// cancelNow cancels a campaign that has sold nothing.
func cancelNow(s *fleet.System, id uuid.UUID) {
	s.T.Helper()
	var b pgx.Batch
	campaign.QueueCancel(&b, id, "operator:ops", "a test")
	if err := s.DB.SendBatch(s.T.Context(), &b).Close(); err != nil {
		s.T.Fatal(err)
	}
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
		if used.Status != http.StatusAccepted {
			t.Fatalf("%s: on sale: %v", name, used)
		}
		one.end(one.campaign)
		emptyRedis(s)
		before := jobsOf(s, one.campaign)
		for api := range 2 {
			for range 2 { // the second time the api knows
				if again := order(api, name, "mina"); again.Status != http.StatusAccepted || again.ID != used.ID || again.Header.Get("Idempotent-Replayed") != "true" {
					t.Errorf("%s: its key again: %v", name, again)
				}
				if other := order(api, name, "otto"); other.Status != http.StatusUnprocessableEntity || other.Refusal() != "idempotency-key-reused" {
					t.Errorf("%s: its key with another body: %v", name, other)
				}
				late := order(api, "", "otto")
				if late.Status != http.StatusConflict || late.Refusal() != one.code {
					t.Errorf("%s: a new key: %v", name, late)
				}
				fleet.CheckProblem(t, late)
			}
		}
		if n := jobsOf(s, one.campaign); n != before {
			t.Errorf("%s: %d jobs after %d", name, n, before)
		}
		inTime[used.ID] = one.code
	}
	if n := s.Metric(0, `triprize_purchases_refused_total{code="campaign-not-active"}`); n != 4 {
		t.Errorf("%v refusals were counted", n)
	}
	s.RunWorker()
	for id, code := range inTime {
		if a := s.AwaitJob(0, id); a.State != job.Failed || a.Refusal() != code {
			t.Errorf("a job that was accepted before the end: %v, not %s", a, code)
		}
	}
}

// A crowd at a closed campaign asks Redis for no key, and Postgres for many keys at a time.
func TestACrowdAtAClosedCampaignSharesLooks(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	id := s.Campaign(3)
	cancelNow(s, id)
	looked := func() (n float64) {
		for _, outcome := range []string{"hit", "miss", "away"} {
			n += s.Metric(0, `triprize_idempotency_lookups_total{outcome="`+outcome+`"}`)
		}
		return n
	}
	before := looked()
	for _, a := range s.Crowd(100, func(int) fleet.Order { return fleet.Order{Campaign: id, User: uuid.NewString(), Wait: true} }) {
		if a.Status != http.StatusConflict {
			t.Error(a)
		}
	}
	if n := looked() - before; n != 0 || jobsOf(s, id) != 0 {
		t.Errorf("%v keys were looked up in Redis, %d jobs made", n, jobsOf(s, id))
	}
}

// While the last positions wait for their payment, they may become free again: jobs decide.
func TestACampaignWithReservationsIsNotClosed(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Schedulers: -1})
	id := s.Campaign(2)
	fixture.Reserve(t, s.DB, id, "mina", 3, time.Hour)
	if a := s.Buy(fleet.Order{Campaign: id, User: "otto", Wait: true}); a.Status != http.StatusOK || a.State != job.Failed || a.Refusal() != "none-available" {
		t.Errorf("%v", a)
	}
}

// What a process knows of a closed campaign decides nothing: after a failover or a restore
// Postgres may have lost the end.
func TestACampaignThatSellsAgainAfterARestoreSells(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Schedulers: -1})
	id := s.Campaign(3)
	cancelNow(s, id)
	if a := s.Buy(fleet.Order{Campaign: id, User: "mina"}); a.Status != http.StatusConflict {
		t.Fatal(a)
	}
	err := postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `SET LOCAL session_replication_role = replica`) // no transaction of ours may do this: without the triggers
		servers.Exec(t, tx, `UPDATE campaigns SET state = 'active', cancelled_at = NULL, cancelled_by = NULL, cancel_reason = NULL WHERE id = $1`, id)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := s.Buy(fleet.Order{Campaign: id, User: "mina", Wait: true}); a.State != job.Succeeded {
			t.Error(a)
		}
	}
}
