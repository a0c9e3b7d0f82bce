//go:build failpoint

package upkeep_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/person"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func newEraser(db *pgxpool.Pool) *person.Eraser {
	return person.NewEraser(db, db, upkeep.Personal(), keyring.NewHasher("a key", ""))
}

// anErasure makes the job of an erasure of a user at the client of fixtures, for which it is known that nothing is open.
func anErasure(t *testing.T, db *pgxpool.Pool, user string) job.Ref {
	t.Helper()
	id := uuid.New()
	servers.Exec(t, db, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, user_id, payload, expires_at)
		VALUES ($1, 'test', gen_random_uuid()::text, sha256(''), 'erasure', $2, json_build_object('client', 'test', 'user_id', $2::text, 'by', 'app:test', 'reason', 'asked'), now())`, id, user)
	servers.Exec(t, db, `INSERT INTO outbox_messages (id, kind, jobs) VALUES (gen_random_uuid(), 'erasure', ARRAY[$1::uuid])`, id)
	servers.Exec(t, db, `INSERT INTO erasures (id, client, pseudonym, begun_at) VALUES ($1, 'test', 'erased-' || $1::uuid, now())`, id)
	return job.Ref{ID: id}
}

// A command that names a wallet does not say whose it is. What comes into a wallet meanwhile has to leave it first.
func TestAnErasureWaitsForMoneyThatCameMeanwhile(t *testing.T) {
	t.Parallel()
	db, mina := servers.DB(t), uuid.NewString()
	id := fixture.Wallet(t, db, mina, 0)
	ref := anErasure(t, db, mina)
	eraser := newEraser(db)
	remove := failpoint.Set("person.begun", ref.ID.String(), func() { fixture.Move(t, db, id, 5) })
	if _, err := eraser.Run(t.Context(), ref); !errors.Is(err, person.ErrSnoozed) {
		t.Errorf("with money: %v", err)
	}
	remove()
	if _, err := eraser.Run(t.Context(), ref); !errors.Is(err, person.ErrSnoozed) {
		t.Errorf("with money, again: %v", err)
	}
	fixture.Move(t, db, id, -5)
	if outcome, err := eraser.Run(t.Context(), ref); err != nil || string(outcome.Result) != `{"erased":{"wallets": 1}}` {
		t.Errorf("without: %s %v", outcome.Result, err)
	}
	servers.Exec(t, db, `DELETE FROM outbox_messages`)
	fixture.Sound(t, db)
}

// What is written about somebody meanwhile, under the id or about what is renamed already, is found by a later pass. An erasure that was refused
// leaves nothing of its own.
func TestWhatIsWrittenDuringAnErasureIsErased(t *testing.T) {
	t.Parallel()
	db, mina := servers.DB(t), "mina-"+uuid.NewString()
	campaign := fixture.Campaign(t, db, fixture.Draft(3))
	bought := fixture.Buy(t, db, campaign, mina, 0, 1)
	wallet := fixture.Wallet(t, db, mina, 5)
	eraser := newEraser(db)
	refused := anErasure(t, db, mina)
	servers.Exec(t, db, `UPDATE erasures SET begun_at = NULL`)
	outcome, err := eraser.Run(t.Context(), refused)
	servers.NoError(t, err)
	if p := outcome.Problem; p == nil || p.Code != fault.StateConflict || len(p.Fields) != 2 {
		t.Errorf("with a purchase and money: %+v", p)
	}
	fixture.Move(t, db, wallet, -5)
	ref := anErasure(t, db, mina)
	written := 0
	defer failpoint.Set("person.batch", "purchases "+ref.ID.String(), func() {
		written++
		servers.Exec(t, db, `INSERT INTO webhook_events (id, client, type, subject, payload) VALUES (gen_random_uuid(), 'test', 'purchase.completed', $1, json_build_object('note', $2::text))`, bought, mina)
		servers.Exec(t, db, `INSERT INTO wallet_metadata (wallet_id, metadata) VALUES ($1, jsonb_build_object('note', $2::text))`, wallet, mina)
	})()
	if outcome, err = eraser.Run(t.Context(), ref); err != nil || outcome.Problem != nil || written != 1 {
		t.Errorf("%+v %v, %d times", outcome, err, written)
	}
	if left := fixture.RowsWith(t, db, mina); len(left) > 0 {
		t.Errorf("it is in %s", left)
	}
}

// A worker dies at each point, once after each batch; the next goes on. What is erased is the same, and the books are sound at any moment.
func TestAnErasureThatIsInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, about string }{{"person.begun", ""}, {"person.batch", "jobs"}, {"person.batch", "purchases"}, {"person.batch", "ledger_entries"}, {"person.batch", "wallets"}, {"person.forget", ""}} {
		t.Run(c.name+" "+c.about, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			mina := uuid.NewString()
			campaign := fixture.Campaign(t, db, fixture.Draft(17))
			wallet := fixture.Wallet(t, db, mina, 1_000_000)
			for range 120 {
				fixture.Complete(t, db, fixture.WalletRequest(t, campaign, mina, 0, 1))
			}
			fixture.Move(t, db, wallet, -fixture.Balance(t, db, wallet))
			fixture.Buy(t, db, campaign, "otto", 0, 1)
			ref := anErasure(t, db, mina)
			about := strings.TrimSpace(c.about + " " + ref.ID.String())
			eraser := newEraser(db)
			remove := failpoint.Set(c.name, about, runtime.Goexit)
			var dies sync.WaitGroup
			died := true
			dies.Go(func() {
				_, err := eraser.Run(context.Background(), ref)
				died = false
				t.Error("it has not died:", err)
			})
			dies.Wait()
			remove()
			if died {
				fixture.Sound(t, db)
			}
			var at sync.WaitGroup
			for range 3 { // and three at once
				at.Go(func() {
					if _, err := eraser.Run(context.Background(), ref); err != nil && !errors.Is(err, job.ErrFinal) && !errors.Is(err, person.ErrSnoozed) && !postgres.IsTransient(err) {
						t.Error(err)
					}
				})
			}
			at.Wait()
			servers.Eventually(t, "it is final", func() bool { // the three may have stopped each other
				_, err := eraser.Run(t.Context(), ref)
				return errors.Is(err, job.ErrFinal)
			})
			done := fixture.Job(t, db, ref.ID)
			if done.State != job.Succeeded || done.UserID != nil {
				t.Errorf("the job is %+v", done)
			}
			if n := servers.Value[int](t, db, `SELECT (result -> 'erased' ->> 'purchases')::int + (result -> 'erased' ->> 'wallets')::int FROM jobs WHERE id = $1`, ref.ID); n != 121 {
				t.Errorf("%d purchases and wallets are erased", n)
			}
			if n := servers.Value[int](t, db, `SELECT count(DISTINCT user_id) FROM purchases`); n != 2 {
				t.Errorf("%d users have purchases", n)
			}
			servers.Exec(t, db, `DELETE FROM outbox_messages`)
			fixture.Sound(t, db)
		})
	}
}

// A transaction that is older may not know of the erasure: it ends first.
func TestAnErasureWaitsForOlderTransactions(t *testing.T) {
	t.Parallel()
	db, mina := servers.DB(t), uuid.NewString()
	fixture.Wallet(t, db, mina, 0)
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	servers.Exec(t, tx, `INSERT INTO outbox_messages (id, kind, jobs) VALUES (gen_random_uuid(), 'erasure', '{}')`)
	ref := anErasure(t, db, mina)
	servers.Exec(t, db, `UPDATE erasures SET begun_at = NULL`)
	if _, err := newEraser(db).Run(t.Context(), ref); !errors.Is(err, person.ErrSnoozed) {
		t.Errorf("with an older transaction: %v", err)
	}
	servers.NoError(t, tx.Rollback(t.Context()))
	if _, err := newEraser(db).Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// A worker is paused in the middle, another one finishes, and the person comes back: a new one, of whom the first worker erases nothing.
func TestAWorkerThatWasPausedErasesNobodyWhoHasComeBack(t *testing.T) {
	t.Parallel()
	db, mina := servers.DB(t), uuid.NewString()
	campaign := fixture.Campaign(t, db, fixture.Draft(3))
	fixture.Buy(t, db, campaign, mina, 0, 1)
	ref := anErasure(t, db, mina)
	isPaused := false
	defer failpoint.Set("person.begun", ref.ID.String(), func() {
		if isPaused {
			return
		}
		isPaused = true
		if _, err := newEraser(db).Run(t.Context(), ref); err != nil {
			t.Error(err)
		}
		fixture.Buy(t, db, campaign, mina, 0, 1)
	})()
	if _, err := newEraser(db).Run(t.Context(), ref); !errors.Is(err, job.ErrFinal) {
		t.Errorf("the first worker: %v", err)
	}
	if n := servers.Value[int](t, db, `SELECT count(*) FROM purchases WHERE user_id = $1`, mina); n != 1 {
		t.Errorf("%d purchases are of who has come back", n)
	}
	servers.Exec(t, db, `DELETE FROM outbox_messages`)
	fixture.Sound(t, db)
}

// Purchases change while they are erased: what names their user changes with them, or not yet. A job that goes on for one that was given up
// has its pseudonym.
func TestWhatNamesTheUserOfAPurchaseChangesWithIt(t *testing.T) {
	t.Parallel()
	db, mina := servers.DB(t), uuid.NewString()
	campaign := fixture.Campaign(t, db, fixture.Draft(17))
	requests := make([]job.Request, 120)
	for i := range requests {
		requests[i] = fixture.PurchaseRequest(t, campaign, mina, 0, 1)
	}
	fixture.Complete(t, db, requests...)
	givenUp := anErasure(t, db, mina)
	servers.Exec(t, db, `UPDATE jobs SET state = 'failed', problem = '{"code":"internal-error"}', finished_at = now() WHERE id = $1`, givenUp.ID)
	pseudonym := servers.Value[string](t, db, `SELECT pseudonym FROM erasures`)
	ref := job.Ref{ID: uuid.New()}
	servers.Exec(t, db, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, user_id, payload, expires_at)
		SELECT $1, client, 'again', request_hash, kind, user_id, payload, expires_at FROM jobs WHERE id = $2`, ref.ID, givenUp.ID)
	asDrawn(t, db)
	hits := 0
	defer failpoint.Set("person.batch", "purchases "+ref.ID.String(), func() {
		if hits++; hits == 1 {
			servers.Exec(t, db, `UPDATE purchases SET metadata = '{}' WHERE user_id = $1`, mina)
		}
		if n := servers.Value[int](t, db, `SELECT count(*) FROM purchases p JOIN positions s ON s.purchase_id = p.id WHERE s.user_id <> p.user_id`); n > 0 {
			t.Errorf("%d positions are of another than their purchase", n)
		}
	})()
	outcome, err := newEraser(db).Run(t.Context(), ref)
	if err != nil || outcome.Problem != nil || hits != 2 {
		t.Errorf("%+v %v, %d batches", outcome, err, hits)
	}
	if got := servers.Value[string](t, db, `SELECT string_agg(DISTINCT user_id, ' ') FROM purchases`); got != pseudonym {
		t.Errorf("the purchases are of %s, not of %s", got, pseudonym)
	}
	if left := fixture.RowsWith(t, db, mina); len(left) > 0 {
		t.Errorf("it is in %s", left)
	}
}
