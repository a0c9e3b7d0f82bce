package delivery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// An operation is a kind of job whose attempts are counted.
type operation struct {
	hand    func(w *worker) complete
	due     func(t *testing.T, w *worker) job.Ref
	spoil   string                                                       // makes it fail by itself, every time; $1 is its campaign, $2 the job
	block   func(t *testing.T, w *worker, id uuid.UUID) (unblock func()) // puts it off
	blocked error
}

var operations = map[job.Kind]operation{
	job.KindPurchase: {
		hand: func(w *worker) complete { return w.purchases.jobs },
		due: func(t *testing.T, w *worker) job.Ref {
			return order(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), "a").Jobs[0]
		},
		spoil: `UPDATE jobs SET payload = '"no order"' WHERE campaign_id = $1 AND id = $2`,
		block: lock, blocked: ErrLocked,
	},
	job.KindCancellation: {
		hand: func(w *worker) complete { return w.cancellations.jobs },
		due: func(t *testing.T, w *worker) job.Ref {
			return takeBack(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), 1)[0]
		},
		spoil: `UPDATE jobs SET payload = '"no order"' WHERE campaign_id = $1 AND id = $2`,
		block: lock, blocked: ErrLocked,
	},
	job.KindDraw: {
		hand: func(w *worker) complete { return w.oneByOne(job.KindDraw, w.draw) },
		due: func(t *testing.T, w *worker) job.Ref {
			return fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
		},
		spoil: `UPDATE draw_secrets SET sealed = 'something else' WHERE campaign_id = $1 AND $2::uuid IS NOT NULL`,
		block: func(t *testing.T, w *worker, id uuid.UUID) func() {
			other, ok, err := campaign.Claim(t.Context(), w.db, id, "a worker", time.Hour)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			return func() { servers.NoError(t, other.Release(t.Context(), w.db)) }
		},
		blocked: drawing.ErrBusy,
	},
}

// takeBack sells one position to each of n users and asks to cancel the purchases.
func takeBack(t *testing.T, w *worker, campaignID uuid.UUID, n int) []job.Ref {
	t.Helper()
	requests := make([]job.Request, n)
	for i := range requests {
		requests[i] = fixture.CancelRequest(t, campaignID, fixture.Buy(t, w.db, campaignID, uuid.NewString(), 0, 1))
	}
	return fixture.Accept(t, w.db, requests...)
}

func TestEachKindOfJobIsCountedFromItsSecondDeliveryOnAndGivenUpAfterItsLast(t *testing.T) {
	t.Parallel()
	for kind, op := range operations {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorker(t)
			deliver := func(again bool, before, want int, state job.State) {
				t.Helper()
				ref := op.due(t, w)
				deliveredBefore(t, w, before, ref.ID)
				for _, again := range []bool{again, true, false} { // those after its end do nothing
					if err := op.hand(w)(t.Context(), []job.Ref{ref}, again); err != nil {
						t.Errorf("delivered after %d: %v", before, err)
					}
					expect(t, w.db, ref.ID, state, want)
				}
				if j := fixture.Job(t, w.db, ref.ID); (state == job.Failed) != (j.Problem != nil) || state == job.Failed && j.Problem.Code != fault.InternalError {
					t.Errorf("delivered after %d: %+v", before, j.Problem)
				}
			}
			deliver(false, 0, 1, job.Succeeded)
			for before, want := range map[int]int{0: 2, 1: 2, 2: 3, 4: 5} {
				deliver(true, before, want, job.Succeeded)
			}
			deliver(true, 5, 6, job.Failed)
			fixture.Sound(t, w.db)
		})
	}
}

func TestAJobThatIsPutOffIsNotCounted(t *testing.T) {
	t.Parallel()
	for kind, op := range operations {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorker(t)
			ref := op.due(t, w)
			unblock := op.block(t, w, ref.CampaignID)
			for _, c := range []struct {
				before int
				again  bool
				want   int
			}{{0, false, 0}, {0, true, 1}, {1, true, 1}, {2, true, 2}, {2, true, 2}} {
				deliveredBefore(t, w, c.before, ref.ID)
				if err := op.hand(w)(t.Context(), []job.Ref{ref}, c.again); !errors.Is(err, op.blocked) || !errors.Is(err, queue.ErrSnoozed) {
					t.Errorf("got %v", err)
				}
				expect(t, w.db, ref.ID, job.Queued, c.want)
			}
			unblock()
			servers.NoError(t, op.hand(w)(t.Context(), []job.Ref{ref}, true))
			expect(t, w.db, ref.ID, job.Succeeded, 3)
			fixture.Sound(t, w.db)
		})
	}
}

// A failure is a failure even if another job of the message was put off: otherwise the next delivery counts as a
// first one, and the job that fails is never counted.
func TestAJobThatFailsByItselfDelaysNoOther(t *testing.T) {
	t.Parallel()
	for kind, op := range operations {
		for _, deliveries := range [][]bool{{false}, {true, true}} { // the second time in a group, the third alone
			t.Run(string(kind), func(t *testing.T) {
				t.Parallel()
				w := newWorker(t)
				refs := []job.Ref{op.due(t, w), op.due(t, w), op.due(t, w), op.due(t, w)}
				servers.Exec(t, w.db, op.spoil, refs[1].CampaignID, refs[1].ID)
				op.block(t, w, refs[3].CampaignID)
				for _, again := range deliveries {
					if err := op.hand(w)(t.Context(), refs, again); err == nil || errors.Is(err, queue.ErrSnoozed) {
						t.Errorf("got %v", err)
					}
				}
				for i, want := range []job.State{job.Succeeded, job.Queued, job.Succeeded, job.Queued} {
					if j := fixture.Job(t, w.db, refs[i].ID); j.State != want {
						t.Errorf("job %d is %s", i, j.State)
					}
				}
			})
		}
	}
}

// heldBack tells whether a batch would have to wait now.
func heldBack(w *worker) bool {
	if w.exclusive.TryRLock() {
		w.exclusive.RUnlock()
		return false
	}
	return true
}

// attempted returns jobs as they are after n attempts.
func attempted(refs []job.Ref, n int) []job.Ref {
	jobs := slices.Clone(refs)
	for i := range jobs {
		jobs[i].Attempts = n
	}
	return jobs
}

var errPanicked = errors.New("panicked")

// The count is committed before the job is tried, and nothing else runs meanwhile.
func TestAnAttemptStaysCountedUnlessItsFaultWasTransient(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	for name, c := range map[string]struct {
		err      error
		attempts int
	}{
		"it went well":             {nil, 3},
		"a panic":                  {errPanicked, 3},
		"a fault of its own":       {errors.New("a fault"), 3},
		"a refusal":                {fault.New(fault.SoldOut, "sold out"), 3},
		"a rule of the database":   {&pgconn.PgError{Code: "23514"}, 3},
		"not now":                  {queue.Snooze(errors.New("busy")), 2},
		"a deadlock":               {&pgconn.PgError{Code: "40P01"}, 2},
		"a standby":                {&pgconn.PgError{Code: "25006"}, 2},
		"a lost connection":        {&pgconn.ConnectError{}, 2},
		"a deadline":               {context.DeadlineExceeded, 2},
		"the worker shuts down":    {context.Canceled, 2},
		"too many callers waiting": {batch.ErrFull, 2},
	} {
		jobs, tried := attempted(order(t, w, uuid.New(), "a").Jobs, 2), 0
		deliveredBefore(t, w, 2, jobs[0].ID)
		try := func() (err error) {
			defer func() {
				if recover() != nil {
					err = errPanicked
				}
			}()
			return w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error {
				tried++
				expect(t, w.db, jobs[0].ID, job.Queued, 3) // another connection sees it
				if !heldBack(w) {
					t.Errorf("%s: a batch could run at the same time", name)
				}
				if errors.Is(c.err, errPanicked) {
					panic(c.err)
				}
				return c.err
			})
		}
		if err := try(); !errors.Is(err, c.err) || tried != 1 {
			t.Errorf("%s: %v, tried %d times", name, err, tried)
		}
		if expect(t, w.db, jobs[0].ID, job.Queued, c.attempts); heldBack(w) {
			t.Fatalf("%s: everything is still held back", name)
		}
	}
}

// Two messages may name one job. Attempts at once would both count, and give it up although neither has killed its worker.
func TestAWorkerAttemptsAJobOnceAtATime(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	ref := order(t, w, uuid.New(), "a").Jobs[0]
	tried := 0
	var do One
	do = func(ctx context.Context, ref job.Ref) (job.Outcome, error) {
		tried++
		if tried == 1 {
			if err := w.attempt(ctx, job.KindPurchase, ref, true, do); !errors.Is(err, errTaken) {
				t.Errorf("beside the first: %v", err)
			}
		}
		return job.Outcome{}, job.ErrFinal
	}
	for range 2 {
		servers.NoError(t, w.attempt(t.Context(), job.KindPurchase, ref, true, do))
	}
	if expect(t, w.db, ref.ID, job.Queued, 3); tried != 2 {
		t.Errorf("tried %d times", tried)
	}
}

func TestAJobThatIsFinalByNowIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorker(t, maxDeliveries(2))
	jobs := attempted(order(t, w, uuid.New(), "a").Jobs, 2)
	deliveredBefore(t, w, 9, jobs[0].ID)
	if given, err := job.GiveUp(t.Context(), w.db, []uuid.UUID{jobs[0].ID}, job.Problem{Code: fault.SoldOut}); err != nil || len(given) != 1 {
		t.Fatal(given, err)
	}
	servers.NoError(t, w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error { t.Error("it was tried"); return nil }))
	if j := fixture.Job(t, w.db, jobs[0].ID); j.Attempts != 9 || j.Problem.Code != fault.SoldOut {
		t.Errorf("it is %+v", j)
	}
}

func maxDeliveries(n int) func(s *config.Settings) {
	return func(s *config.Settings) { s.Worker.MaxDeliveries = n }
}

// What cannot be counted because of a transient fault does not count.
func TestADrawWhoseAttemptCannotBeCountedIsPutOff(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	ref := fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
	deliveredBefore(t, w, 2, ref.ID)
	defer lockJob(t, w, ref.ID)()
	if err := w.oneByOne(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, true); !errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("a transient fault counts as a failure of the task: %v", err)
	}
}

// lockJob locks a job: nobody can count its attempts until it is unlocked.
func lockJob(t *testing.T, w *worker, id uuid.UUID) (unlock func()) {
	t.Helper()
	return fixture.LockRows(t, w.db, `jobs WHERE id = $1`, id)
}

// A fault that ends an attempt may go on, so that the attempt cannot be uncounted. The
// handler keeps the task until it can, and does not hold back others.
func TestAnAttemptIsUncountedThoughItsFaultGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	log := &servers.Journal{}
	w.Logger = slog.New(slog.NewTextHandler(log, nil))
	jobs := attempted(order(t, w, uuid.New(), "a").Jobs, 2)
	deliveredBefore(t, w, 2, jobs[0].ID)
	unlocked := make(chan func(), 1)
	tried := make(chan error, 1)
	go func() {
		tried <- w.exclusively(t.Context(), job.KindPurchase, jobs, func(context.Context) error {
			unlocked <- lockJob(t, w, jobs[0].ID)
			return context.DeadlineExceeded
		})
	}()
	unlock := <-unlocked
	servers.Eventually(t, "it cannot be uncounted", func() bool { return strings.Contains(log.String(), "not uncounted yet") })
	if heldBack(w) {
		t.Error("others are held back meanwhile")
	}
	expect(t, w.db, jobs[0].ID, job.Queued, 3)
	select {
	case err := <-tried:
		t.Fatalf("the task was given back: %v", err)
	default:
	}
	unlock()
	if err := <-tried; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	expect(t, w.db, jobs[0].ID, job.Queued, 2)
}

// While a group waits, every shard stands still. So it waits for one campaign only, and after one wait in
// vain none waits for a while.
func TestRedeliveredJobsOfLockedCampaignsWaitInVainOnce(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	var jobs []job.Ref
	for range 5 {
		id := fixture.Campaign(t, w.db, fixture.Draft(5))
		jobs = append(jobs, takeBack(t, w, id, 1)...)
		lock(t, w, id)
	}
	for _, ref := range jobs[2:] {
		deliveredBefore(t, w, 2, ref.ID) // each is a group of its own
	}
	made := record(w.cancellations, nil)
	w.shards[0].waits.pause = time.Hour
	for range 2 {
		if err := w.cancellations.jobs(t.Context(), jobs, true); !errors.Is(err, ErrLocked) {
			t.Errorf("got %v", err)
		}
	}
	if n := made.waits(); n != 1 {
		t.Errorf("%d of %d transactions waited", n, made.count())
	}
	for i, want := range []int{1, 1, 2, 2, 2} {
		expect(t, w.db, jobs[i].ID, job.Queued, want)
	}
}

// However many cancellations come at once, they wait without a connection, and share
// transactions: a flood of those that are refused too.
func TestAFloodOfCancellationsIsAFewTransactions(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(6))
	bought := fixture.Buy(t, w.db, id, "a", 0, 1)
	requests := make([]job.Request, 200)
	for i := range requests {
		requests[i] = fixture.CancelRequest(t, id, bought)
	}
	refs := fixture.Accept(t, w.db, requests...)
	begun, goOn := make(chan struct{}), make(chan struct{})
	first, letGoOn := sync.OnceFunc(func() { close(begun); <-goOn }), sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(letGoOn)
	made := record(w.cancellations, func(job.LockWait) error { first(); return nil })
	batches := w.shards[0].batches[job.KindCancellation]
	servers.NoError(t, batches.Submit(&item{Ref: job.Ref{ID: uuid.New(), CampaignID: id}})) // a batch of its own, before the others
	<-begun
	var all sync.WaitGroup
	for _, ref := range refs {
		all.Go(func() {
			if err := w.cancellations.jobs(t.Context(), []job.Ref{ref}, false); err != nil {
				t.Error(err)
			}
		})
	}
	servers.Eventually(t, "all wait, and hold no connection", func() bool { return batches.Pending() == len(refs) && w.db.Stat().AcquiredConns() == 0 })
	letGoOn()
	all.Wait()
	succeeded := 0
	for _, ref := range refs {
		if j := fixture.Job(t, w.db, ref.ID); j.State == job.Succeeded {
			succeeded++
		} else if j.Problem == nil || j.Problem.Code != fault.StateConflict {
			t.Errorf("it is %s, %+v", j.State, j.Problem)
		}
	}
	if n := made.count(); n != 2 || succeeded != 1 {
		t.Errorf("%d transactions, %d cancellations succeeded", n, succeeded)
	}
	fixture.Sound(t, w.db)
}
