package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// locked locks something with a statement until unlock is called.
func locked(t *testing.T, db *pgxpool.Pool, statement string) (unlock func()) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	servers.Exec(t, tx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
	servers.Exec(t, tx, statement)
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// lockRows locks rows until unlock is called.
func lockRows(t *testing.T, db *pgxpool.Pool, table string, ids []uuid.UUID) (unlock func()) {
	t.Helper()
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return locked(t, db, `SELECT FROM `+table+` WHERE id = ANY('{`+strings.Join(names, ",")+`}') FOR NO KEY UPDATE`)
}

// Somebody has more campaigns and wallets locked than a process has connections. For
// each of them something waits: a hold and its end, a publication, a change, a pause,
// a draw, a payment. Everything else goes on; and what waited is done when it can be.
func TestWhatIsLockedElsewhereUsesUpNoPool(t *testing.T) {
	t.Parallel()
	const n = 12 // a process has 10 connections
	s := fleet.Start(t, fleet.Options{Workers: -1, Schedulers: -1})
	other, bought := s.Campaign(20), s.Campaign(20)
	earlier := s.Buy(fleet.Order{Campaign: bought, User: "mina"})
	var campaigns, drafts, soldOut, wallets []uuid.UUID
	var kept []fleet.Held
	for i := range n {
		campaigns, soldOut = append(campaigns, s.Campaign(3)), append(soldOut, s.Campaign(3))
		drafts = append(drafts, s.Do(0, s.Operator, http.MethodPost, "/v1/campaigns", map[string]string{"Idempotency-Key": uuid.NewString()}, fleet.CampaignBody(3)).ID)
		wallets = append(wallets, uuid.MustParse(fleet.WalletID(s.Wallet(fmt.Sprint("owner-", i), 1000))))
		kept = append(kept, s.MustHold(fleet.HoldOrder{Campaign: campaigns[i], User: "mina", At: []shape.Position{fixture.At(1, 1)}}))
		fixture.Complete(t, s.DB, fixture.PurchaseRequest(t, soldOut[i], "mina", 0, 6))
	}
	free := s.Wallet("free", 1000)
	unlockCampaigns := lockRows(t, s.DB, "campaigns", append(append(append([]uuid.UUID{}, campaigns...), drafts...), soldOut...))
	unlockWallets := lockRows(t, s.DB, "wallets", wallets)
	s.RunWorker()
	answers := make(chan string, 7*n)
	waiting := 0
	wait := func(what string, status int, do func() fleet.Answer) {
		waiting++
		go func() {
			a := do()
			for a.Refusal() == "overloaded" { // nothing was done: on a slow machine the locks last longer than requests wait
				a = do()
			}
			if a.Status != status {
				answers <- fmt.Sprintf("%s: %v %s", what, a, a.Body)
				return
			}
			answers <- ""
		}()
	}
	operate := func(method, path string, body any) fleet.Answer {
		return s.Do(0, s.Operator, method, path, map[string]string{"Idempotency-Key": uuid.NewString()}, body)
	}
	for i := range n {
		campaign := campaigns[i].String()
		wait("hold", http.StatusCreated, func() fleet.Answer {
			return s.Hold(fleet.HoldOrder{Campaign: campaigns[i], User: "otto", At: []shape.Position{fixture.At(2, 1)}}).Answer
		})
		wait("release", http.StatusNoContent, func() fleet.Answer { return s.Release(s.App, kept[i].ID) })
		wait("publish", http.StatusOK, func() fleet.Answer { return s.Post("/v1/campaigns/"+drafts[i].String()+"/publish", nil) })
		wait("change", http.StatusOK, func() fleet.Answer {
			return operate(http.MethodPatch, "/v1/campaigns/"+campaign, fleet.Fields{"name": "another"})
		})
		wait("debit", http.StatusOK, func() fleet.Answer {
			return s.ExecuteUntilDone(0, "/v1/wallets/"+wallets[i].String()+"/debit", fleet.Fields{"amount": 10})
		})
	}
	for i := range n { // the worker waits for these
		wantAnswer(t, "draw", operate(http.MethodPost, "/v1/campaigns/"+soldOut[i].String()+"/draw", nil), 202)
	}
	servers.AwaitBlocked(t, s.DB, 2)
	for i := range 3 {
		wantAnswer(t, "a purchase elsewhere", s.Buy(fleet.Order{Campaign: other, User: fmt.Sprint("buyer-", i), Wait: true}), job.Succeeded)
		wantAnswer(t, "a job", s.AwaitJob(0, earlier.ID), job.Succeeded)
		s.MustHold(fleet.HoldOrder{Campaign: other, User: fmt.Sprint("holder-", i), Quantity: 1})
		wantAnswer(t, "another wallet", s.Execute(free+"/debit", fleet.Fields{"amount": 10}), 200)
		s.Ready(0)
	}
	if len(answers) > 0 {
		waiting--
		t.Errorf("it did not wait: %s", <-answers)
	}
	unlockCampaigns()
	unlockWallets()
	for range waiting {
		if wrong := <-answers; wrong != "" {
			t.Error(wrong)
		}
	}
	s.RunScheduler() // its sweeps issue again what could not be enqueued
	s.AwaitDrawn(soldOut...)
}
