package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// ask accepts a draw job as an operator would.
func ask(t *testing.T, w *Worker, campaignID uuid.UUID) job.Ref {
	t.Helper()
	id := uuidv7.New()
	return fixture.Accept(t, w.db, job.Request{ID: id, Client: "ops", Key: id.String(), Kind: job.KindDraw, CampaignID: campaignID, Keep: time.Hour})[0]
}

func TestADrawIsTriedAloneFromItsThirdDeliveryOn(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for before, want := range map[int]int{0: 2, 1: 2, 2: 3, 4: 5} {
		ref := fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
		deliveredBefore(t, w, before, ref.ID)
		if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, true); err != nil {
			t.Error(err)
		}
		expect(t, w.db, ref.ID, job.Succeeded, want)
	}
	given := fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
	deliveredBefore(t, w, 5, given.ID)
	first := fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
	if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{given}, true); err != nil {
		t.Error(err)
	}
	if j := fixture.Job(t, w.db, given.ID); j.State != job.Failed || j.Problem.Code != fault.InternalError {
		t.Errorf("after all its deliveries it is %s, %+v", j.State, j.Problem)
	}
	if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{first}, false); err != nil {
		t.Error(err)
	}
	expect(t, w.db, first.ID, job.Succeeded, 1)
	fixture.Sound(t, w.db)
}

func TestADrawThatAnotherWorkerRunsIsPutOffAndNeverCounted(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(3))
	ref := fixture.SellOut(t, w.db, id)
	other, ok, err := campaign.Claim(t.Context(), w.db, id, "a worker", time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	putOff := func(again bool) {
		t.Helper()
		if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, again); !errors.Is(err, queue.ErrSnoozed) || !errors.Is(err, drawing.ErrBusy) {
			t.Errorf("got %v", err)
		}
	}
	putOff(false)
	expect(t, w.db, ref.ID, job.Queued, 0)
	for range 10 {
		putOff(true)
		expect(t, w.db, ref.ID, job.Queued, 1) // an attempt that was put off does not count
	}
	if err := other.Release(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, true); err != nil {
		t.Error(err)
	}
	expect(t, w.db, ref.ID, job.Succeeded, 2)
	for _, again := range []bool{true, false} {
		if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, again); err != nil {
			t.Errorf("a delivery after the end: %v", err)
		}
	}
	expect(t, w.db, ref.ID, job.Succeeded, 2)
	fixture.Sound(t, w.db)
}

func TestADrawThatCannotBeIsRefusedAndTheNextIsDone(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	early := ask(t, w, fixture.Campaign(t, w.db, fixture.Draft(3)))
	missing := ask(t, w, uuid.New())
	soldOut := fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
	if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{early, missing, soldOut}, false); err != nil {
		t.Error(err)
	}
	for ref, code := range map[job.Ref]fault.Code{early: fault.NotSoldOut, missing: fault.NotFound} {
		if j := fixture.Job(t, w.db, ref.ID); j.State != job.Failed || j.Problem.Code != code {
			t.Errorf("it is %s, %+v, want %s", j.State, j.Problem, code)
		}
	}
	expect(t, w.db, soldOut.ID, job.Succeeded, 1)
}

func TestADrawThatFailsDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for _, again := range []bool{false, true} {
		broken, good := fixture.Campaign(t, w.db, fixture.Draft(3)), fixture.Campaign(t, w.db, fixture.Draft(3))
		jobs := []job.Ref{fixture.SellOut(t, w.db, broken), fixture.SellOut(t, w.db, good)}
		servers.Exec(t, w.db, `UPDATE draw_secrets SET sealed = 'something else' WHERE campaign_id = $1`, broken)
		if err := w.serially(job.KindDraw, w.draw)(t.Context(), jobs, again); err == nil || errors.Is(err, queue.ErrSnoozed) {
			t.Errorf("got %v", err)
		}
		if j := fixture.Job(t, w.db, jobs[0].ID); j.State != job.Queued {
			t.Errorf("the broken draw is %s", j.State)
		}
		if !final(t, w, jobs[1].ID) {
			t.Error("the draw behind it was not done")
		}
	}
}

// What cannot be counted because of a transient fault does not count, for a
// draw as for a purchase.
func TestADrawWhoseAttemptCannotBeCountedIsPutOff(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	ref := fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
	deliveredBefore(t, w, 2, ref.ID)
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	servers.Exec(t, tx, `SELECT FROM jobs WHERE id = $1 FOR UPDATE`, ref.ID)
	if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, true); !errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("a transient fault counts as a failure of the task: %v", err)
	}
}

// A failure is a failure even if another job of the message was put off: otherwise
// the next delivery counts as a first one, and the draw that fails is never counted.
func TestADrawThatFailsIsAFailureBesideOneThatIsPutOff(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	broken, busy := fixture.Campaign(t, w.db, fixture.Draft(3)), fixture.Campaign(t, w.db, fixture.Draft(3))
	jobs := []job.Ref{fixture.SellOut(t, w.db, broken), fixture.SellOut(t, w.db, busy)}
	servers.Exec(t, w.db, `UPDATE draw_secrets SET sealed = 'something else' WHERE campaign_id = $1`, broken)
	if _, ok, err := campaign.Claim(t.Context(), w.db, busy, "a worker", time.Hour); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := w.serially(job.KindDraw, w.draw)(t.Context(), jobs, false); err == nil || errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("the queue takes it for nobody's fault: %v", err)
	}
}
