package e2e

import (
	"net/http"

	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// refuse asks for what is refused: a draw too early, a cancellation that comes twice, a repeated request.
func (m *monitored) refuse() {
	id := m.Campaign(3)
	m.wantSucceeded(m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true}))
	again := m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true})
	m.wantSucceeded(again)
	servers.Eventually(m.T, "the answer is found in Redis", func() bool {
		m.Buy(fleet.Order{Campaign: id, User: "ada", Key: "once", Wait: true})
		return m.Metric(0, `triprize_idempotency_lookups_total{outcome="hit"}`) > 0
	})
	for _, key := range []string{"first", "second"} {
		m.Cancel(m.App, again.Result.PurchaseID, key, "changed my mind")
	}
	early := m.Do(0, m.Operator, http.MethodPost, "/v1/campaigns/"+id.String()+"/draw", map[string]string{"Idempotency-Key": "early"}, nil)
	m.AwaitJob(0, early.ID)
	m.Buy(fleet.Order{Campaign: id, User: "bob", Card: "pm_card_chargeDeclined", Wait: true})
}

func (m *monitored) wantSucceeded(a fleet.Answer) {
	m.T.Helper()
	if a.State != "succeeded" {
		m.T.Fatalf("%v %s", a, a.Body)
	}
}

// sell sells a campaign out, with a wallet, and has it drawn.
func (m *monitored) sell() {
	m.Wallet("ada", 10_000)
	id := m.Campaign(2)
	m.wantSucceeded(m.Buy(fleet.Order{Campaign: id, User: "ada", Quantity: 3, ByWallet: true, Wait: true}))
	m.AwaitDrawn(id)
}

// hold lets a purchase take a position whose hold is over, before the sweep.
func (m *monitored) hold() {
	id := m.Campaign(1)
	m.MustHold(fleet.HoldOrder{Campaign: id, User: "ada", At: []shape.Position{{Layer: 1, Column: 1}}, TTL: 1})
	servers.Eventually(m.T, "the hold is over", func() bool {
		return m.Buy(fleet.Order{Campaign: id, User: "bob", Wait: true}).State == "succeeded"
	})
}

// contend keeps a campaign and a wallet locked while somebody wants them.
func (m *monitored) contend() {
	id := m.Campaign(3)
	unlock := fixture.LockCampaign(m.T, m.DB, id)
	waits := m.Buy(fleet.Order{Campaign: id, User: "ada"})
	m.await(1, `triprize_jobs_under_way{kind="purchase"}`, 1)
	m.await(1, `triprize_postgres_lock_timeouts_total{transaction="purchase"}`, 1)
	m.await(0, `triprize_jobs_queued_age_seconds{kind="purchase"}`, 1)
	m.look()
	unlock()
	m.AwaitJob(0, waits.ID)
}

// failOnce lets a worker fail with a draw, whose job is delivered again.
func (m *monitored) failOnce() {
	servers.Exec(m.T, m.DB, `ALTER TABLE draws ADD CONSTRAINT none_now CHECK (false) NOT VALID`)
	id := m.Campaign(1)
	m.wantSucceeded(m.Buy(fleet.Order{Campaign: id, User: "ada", Wait: true}))
	m.await(1, `triprize_job_attempts_total{delivery="again",kind="draw"}`, 1)
	m.await(0, "triprize_campaigns_drawing_age_seconds", 0.001)
	m.look()
	servers.Exec(m.T, m.DB, `ALTER TABLE draws DROP CONSTRAINT none_now`)
	m.AwaitDrawn(id)
}

// exhaust lets three requests of an api want its two connections.
func (m *monitored) exhaust() {
	m.URLs = m.URLs[:len(monitoredProcesses)]
	m.RunAPI("TRIPRIZE_POSTGRES_MAX_CONNECTIONS=2")
	small := len(m.URLs) - 1
	id, wallet := m.Campaign(3), m.Wallet("bob", 1)
	known := m.Buy(fleet.Order{Campaign: id, User: "ada", Wait: true, API: small})
	m.wantSucceeded(known)
	tx, err := m.DB.Begin(m.T.Context())
	if err != nil {
		m.T.Fatal(err)
	}
	servers.Exec(m.T, tx, `LOCK TABLE jobs`)
	done := make(chan []fleet.Answer)
	go func() {
		done <- fleet.AtOnce(3, func(i int) fleet.Answer {
			switch i {
			case 0:
				return m.Buy(fleet.Order{Campaign: id, User: "ada", API: small})
			case 1:
				return m.ExecuteAt(small, wallet+"/credit", fleet.Fields{"amount": 1})
			}
			return m.Do(small, m.App, http.MethodGet, "/v1/jobs/"+known.ID.String(), nil, nil)
		})
	}()
	m.await(small, "triprize_postgres_connections_waiting", 1)
	m.watchAlso(small)
	if err := tx.Rollback(m.T.Context()); err != nil {
		m.T.Error(err)
	}
	for _, a := range <-done {
		if a.Status >= http.StatusBadRequest {
			m.T.Errorf("%v %s", a, a.Body)
		}
	}
}

// watchAlso looks at the processes and at one more, which counts as an api.
func (m *monitored) watchAlso(process int) {
	urls := m.URLs
	m.URLs = append([]string{urls[process]}, urls[1:]...)
	m.look()
	m.URLs = urls
}
