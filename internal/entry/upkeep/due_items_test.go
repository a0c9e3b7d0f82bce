package upkeep_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// withKey returns a setup with a provider of payments.
func withKey(t *testing.T) *setup {
	t.Helper()
	p := newSetup(t)
	p.takesCards()
	return p
}

func (p *setup) takesCards() {
	p.settings.Payments.Stripe.Key, p.settings.Payments.Recheck = "sk_test_key", time.Hour
	p.with(upkeep.Options{})
}

// dueCards reserves positions by card, whose payments are due now.
func (p *setup) dueCards(n int) (jobs []job.Ref) {
	p.t.Helper()
	id := fixture.Campaign(p.t, p.db, fixture.Draft(10))
	for range n {
		_, ref := fixture.Reserve(p.t, p.db, id, uuid.NewString(), 1, time.Hour)
		jobs = append(jobs, ref)
	}
	p.exec(`UPDATE payments SET due_at = clock_timestamp()`)
	return jobs
}

func (p *setup) exec(sql string) {
	p.t.Helper()
	servers.Exec(p.t, p.db, sql)
}

func (p *setup) queued(kind job.Kind) int64 {
	p.t.Helper()
	n, err := p.rdb.LLen(context.Background(), "asynq:{"+queue.Name(p.settings.Redis.Namespace, string(kind))+"}:pending").Result()
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func TestPaymentsStayDueWhenRedisIsAway(t *testing.T) {
	t.Parallel()
	p := withKey(t)
	p.dueCards(3)
	server, _ := servers.OwnRedis(t)
	p.settings.Redis.URL = server.URL()
	rdb, err := redisx.Open(p.settings.Redis, "test")
	if err != nil {
		t.Fatal(err)
	}
	_ = rdb.Close() // as if it were away
	p.sweeper = upkeep.New(p.settings, p.db, rdb, servers.Logger(t), upkeep.Options{})
	if _, err := p.run("due-items"); err == nil {
		t.Fatal("nothing was enqueued, and the sweep says that all is well")
	}
	if due, err := payment.Agenda.TakeDue(t.Context(), p.db, time.Hour, 10); err != nil || len(due) != 3 {
		t.Errorf("%d are due, %v", len(due), err)
	}
}

// missed is a provider that remembers one event.
type missed struct {
	payprovider.Provider
	event payprovider.Event
}

func (missed) Subjects() map[string]payprovider.Subject { return stripe.NewReader(false).Subjects() }

func (l missed) ListEvents(_ context.Context, from, to time.Time, _ []string, yield func(payprovider.Event) error) error {
	if l.event.CreatedAt.Before(from) || !l.event.CreatedAt.Before(to) {
		return nil
	}
	return yield(l.event)
}

func TestAnEventWhoseWebhookDidNotComeIsFoundAndGetsATask(t *testing.T) {
	t.Parallel()
	p := withKey(t)
	e := cards.NewEvents(p.db, stripe.NewReader(false), servers.Logger(t), prometheus.NewRegistry())
	p.with(upkeep.Options{Events: e, Provider: missed{event: payprovider.Event{ID: "evt_1", Type: "payment_intent.succeeded", CreatedAt: time.Now().Add(-30 * time.Minute)}}})
	if got := p.sweep("missed-events"); got["listed"] != 1 || got["stored"] != 1 || p.queued(job.KindEvent) != 1 {
		t.Errorf("%v, %d tasks", got, p.queued(job.KindEvent))
	}
	if got := p.sweep("missed-events"); got["stored"] != 0 {
		t.Errorf("%v", got)
	}
}
