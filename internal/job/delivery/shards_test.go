package delivery

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Purchases and cancellations of free campaigns, in the shard of one that stays locked.
func TestACampaignThatStaysLockedDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	locked, free := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	heldBacks, passingBacks, laterBacks := takeBack(t, w, locked, 2), takeBack(t, w, free, 1), takeBack(t, w, free, 1)
	unlock := lock(t, w, locked)
	held, passer := order(t, w, locked, "a", "b").Jobs, order(t, w, free, "a").Jobs
	completed := make(chan error, 2)
	go func() { completed <- w.purchases.jobs(t.Context(), slices.Concat(held, passer), false) }()
	go func() {
		completed <- w.cancellations.jobs(t.Context(), slices.Concat(heldBacks, passingBacks), false)
	}()
	servers.Eventually(t, "the free campaign's jobs are done", func() bool { return final(t, w, passer[0].ID) && final(t, w, passingBacks[0].ID) })
	later := order(t, w, free, "b").Jobs
	if err := w.purchases.jobs(t.Context(), later, false); err != nil || !final(t, w, later[0].ID) {
		t.Errorf("a later purchase in the free campaign: %v", err)
	}
	if err := w.cancellations.jobs(t.Context(), laterBacks, false); err != nil || !final(t, w, laterBacks[0].ID) {
		t.Errorf("a later cancellation in the free campaign: %v", err)
	}
	held = append(held, heldBacks...)
	for _, ref := range held {
		expect(t, w.db, ref.ID, job.Queued, 0)
	}
	unlock()
	for range 2 {
		if err := <-completed; err != nil && !errors.Is(err, ErrLocked) { // it took longer than a worker waits
			t.Error(err)
		}
	}
	servers.NoError(t, errors.Join(w.purchases.jobs(t.Context(), held[:2], false), w.cancellations.jobs(t.Context(), heldBacks, false)))
	for _, ref := range held {
		expect(t, w.db, ref.ID, job.Succeeded, 1)
	}
	fixture.Sound(t, w.db)
}

func TestATransientFaultIsWaitedOut(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorkerOn(t, registry)
	tries := 0
	record(w.purchases, func(job.LockWait) error {
		if tries++; tries == 1 {
			return context.DeadlineExceeded
		}
		return nil
	})
	jobs := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(5)), "a").Jobs
	if err := w.purchases.jobs(t.Context(), jobs, false); err != nil || tries != 2 {
		t.Errorf("after %d attempts: %v", tries, err)
	}
	if n := servers.Counted(t, registry, "triprize_transient_faults_total", ""); n != 1 {
		t.Errorf("%v faults are counted", n)
	}
	expect(t, w.db, jobs[0].ID, job.Succeeded, 1)
}

// Payments become due again by themselves: their slots do not wait for the database.
func TestASettlementInAnOutageGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	w, tries := newWorker(t), 0
	settlements := w.Batcher(job.KindPayment, 1, 0, func(context.Context, []job.Ref, job.LockWait) (job.BatchResult, error) {
		tries++
		return job.BatchResult{}, context.DeadlineExceeded
	})
	if err := settlements.Do(t.Context(), job.Ref{ID: uuid.New(), CampaignID: uuid.New()}); !errors.Is(err, queue.ErrSnoozed) || tries != 1 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

func TestABatchThatFailedByATransientFaultIsNotTriedInHalves(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	made := record(w.purchases, func(job.LockWait) error { return context.DeadlineExceeded })
	l := w.shards[0]
	w.exclusive.Lock() // until all are there: the first batch may have taken some of them
	for _, ref := range order(t, w, uuid.New(), "a", "b", "c", "d", "e", "f", "g", "h").Jobs {
		servers.NoError(t, l.batches[job.KindPurchase].Submit(&item{Ref: ref}))
	}
	w.exclusive.Unlock()
	servers.Eventually(t, "one is tried", func() bool { return made.count() > 0 }) // the end gives a batch a second
	l.close()
	if n := made.count(); n < 1 || n > 2 {
		t.Errorf("8 jobs were tried %d times", n)
	}
}

func TestAWorkerThatShutsDownGivesBackJobsThatWait(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(5))
	fixture.LockWallet(t, w.db, fixture.Wallet(t, w.db, "mina", 1000))
	held, passer := fixture.Accept(t, w.db, fixture.WalletRequest(t, id, "mina", 0, 1)), order(t, w, id, "a").Jobs
	tries := 0
	record(w.purchases, func(job.LockWait) error {
		if tries++; tries == 2 {
			w.drain()
		}
		return nil
	})
	if err := w.purchases.jobs(t.Context(), slices.Concat(held, passer), false); !errors.Is(err, errDraining) || !errors.Is(err, queue.ErrSnoozed) || !final(t, w, passer[0].ID) {
		t.Errorf("after %d tries: %v", tries, err)
	}
	expect(t, w.db, held[0].ID, job.Queued, 0)
}

// A batch that hangs must not hold up the end of the process: what was not
// committed is in the outbox.
func TestAShardThatHangsIsEndedAtShutdown(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	hangs := make(chan struct{})
	w.purchases.do = func(ctx context.Context, _ []job.Ref, _ job.LockWait) (job.BatchResult, error) {
		close(hangs)
		<-ctx.Done()
		return job.BatchResult{}, ctx.Err()
	}
	ref := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(5)), "a").Jobs[0]
	over := make(chan []error, 1)
	go func() {
		_, errs := batch.DoAll(t.Context(), []*item{{Ref: ref}}, func(*item) *batch.Coalescer[*item, verdict] { return w.shards[0].batches[job.KindPurchase] })
		over <- errs
	}()
	<-hangs
	w.shards[0].close()
	if errs := <-over; !errors.Is(errs[0], batch.ErrClosed) { // not by the batch's own timeout
		t.Errorf("got %v", errs)
	}
	expect(t, w.db, ref.ID, job.Queued, 0)
}

func TestACampaignIsAlwaysInTheSameShard(t *testing.T) {
	t.Parallel()
	w := &Processor{shards: []*shard{{}, {}, {}}}
	jobs := make(map[*shard]int)
	for range 300 {
		id := uuidv7.New()
		l := w.shardOf(id)
		if again := w.shardOf(id); again != l {
			t.Fatalf("%s is in two shards", id)
		}
		jobs[l]++
	}
	if len(jobs) != 3 {
		t.Errorf("of three shards %d are used by campaigns of one moment", len(jobs))
	}
}

// waitsOf returns how each of the transactions since the last call has waited.
func waitsOf(made *transactions) (waits []job.LockWait) {
	for _, one := range made.take() {
		waits = append(waits, one.wait)
	}
	return waits
}

// For either kind of job: with any rows locked and its jobs tried any number of times, a batch completes
// first what it can. After a wait in vain the shard, of which all kinds are part, goes on without waiting.
func TestAShardIsPatientForAShortTimeAndNotAgainSoon(t *testing.T) {
	t.Parallel()
	w := newWorker(t) // no wait ends by itself but those of the shard
	free := fixture.Campaign(t, w.db, fixture.Draft(5))
	completers := map[*Batcher]func(campaignID uuid.UUID) job.Ref{
		w.purchases:     func(id uuid.UUID) job.Ref { return order(t, w, id, "a").Jobs[0] },
		w.cancellations: func(id uuid.UUID) job.Ref { return takeBack(t, w, id, 1)[0] },
	}
	forCampaign := job.LockWait{Campaign: campaignWait}
	for s, ask := range completers {
		made := record(s, nil)
		l := w.shards[0]
		var held []*item
		var unlocks []func()
		for range 3 {
			id := fixture.Campaign(t, w.db, fixture.Draft(5))
			held = append(held, &item{Ref: ask(id), retries: 1, verdict: campaignLocked})
			unlocks = append(unlocks, lock(t, w, id))
		}
		flush := func(want verdict, waits ...job.LockWait) {
			t.Helper()
			verdicts, err := l.flush(t.Context(), s, append(slices.Clone(held), &item{Ref: ask(free)}))
			if err != nil || !slices.Equal(verdicts, []verdict{want, want, want, done}) {
				t.Errorf("%s: %v, %v", s.kind, verdicts, err)
			}
			if got := waitsOf(made); !slices.Equal(got, waits) {
				t.Errorf("%s: the transactions waited %+v", s.kind, got)
			}
		}
		w.shards[0].waits.pause = time.Hour
		w.shards[0].waits.timedOut()
		for range 3 {
			flush(campaignLocked, job.SkipLocked, job.SkipLocked, job.SkipLocked, job.SkipLocked)
		}
		w.shards[0].waits.resume.Store(nil)
		flush(campaignLocked, forCampaign, forCampaign, job.SkipLocked, job.SkipLocked) // first the free one, then in vain
		if w.shards[0].waits.allowed() {
			t.Errorf("%s: after a wait in vain it would wait again at once", s.kind)
		}
		alone := []*item{{Ref: held[0].Ref}}
		w.shards[0].waits.pause = time.Hour
		w.shards[0].waits.timedOut()
		if _, err := l.flush(t.Context(), s, alone); err != nil || !slices.Equal(waitsOf(made), []job.LockWait{job.SkipLocked}) {
			t.Errorf("%s: a batch of one campaign waited, %v", s.kind, err)
		}
		w.shards[0].waits.resume.Store(nil)
		if _, err := l.flush(t.Context(), s, alone); err != nil || !slices.Equal(waitsOf(made), []job.LockWait{forCampaign}) || w.shards[0].waits.allowed() {
			t.Errorf("%s: a batch of one campaign, later: %v", s.kind, err)
		}
		for _, unlock := range unlocks {
			unlock()
		}
		flush(done, job.SkipLocked, job.SkipLocked, job.SkipLocked, job.SkipLocked)
	}
	fixture.Sound(t, w.db)
}

// Jobs whose wallet stays locked go by themselves, after the others of their campaign, and wait for it.
func TestAShardWaitsForAWalletLast(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id, other := fixture.Campaign(t, w.db, fixture.Draft(6)), fixture.Campaign(t, w.db, fixture.Draft(6))
	mina := fixture.Wallet(t, w.db, "mina", 1000)
	refs := fixture.Accept(t, w.db, fixture.WalletRequest(t, id, "mina", 6, 1), fixture.PurchaseRequest(t, id, "otto", 6, 1), fixture.PurchaseRequest(t, other, "otto", 6, 1))
	items := []*item{{Ref: refs[0], retries: walletRetry - 1, verdict: walletLocked}, {Ref: refs[1]}, {Ref: refs[2]}}
	made := record(w.purchases, nil)
	w.shards[0].waits.pause = time.Hour
	unlock := fixture.LockWallet(t, w.db, mina)
	flush := func(items []*item, want []verdict, waits ...job.LockWait) {
		t.Helper()
		verdicts, err := w.shards[0].flush(t.Context(), w.purchases, items)
		if err != nil || !slices.Equal(verdicts, want) {
			t.Errorf("%v, %v", verdicts, err)
		}
		if got := waitsOf(made); !slices.Equal(got, waits) {
			t.Errorf("the transactions waited %+v", got)
		}
	}
	forCampaign, forWallets := job.LockWait{Campaign: campaignWait}, job.LockWait{Campaign: campaignWait, Wallets: walletWait}
	flush(items, []verdict{walletLocked, done, done}, job.SkipLocked, forCampaign) // it is skipped
	items[0].retries++
	flush(items[:1], []verdict{walletLocked}, forWallets)
	flush(items[:1], []verdict{walletLocked}, job.SkipLocked) // not again soon
	unlock()
	flush(items[:1], []verdict{done}, job.SkipLocked)
	expect(t, w.db, refs[0].ID, job.Succeeded, 1)
	fixture.Sound(t, w.db)
}

// transaction is one transaction of a shard.
type transaction struct {
	refs   []job.Ref
	wait   job.LockWait
	report job.BatchResult
}

// transactions are those of one kind of job.
type transactions struct {
	mu   sync.Mutex
	made []transaction
}

// record notes every transaction of a kind. before is called first; its error is that
// of the transaction.
func record(s *Batcher, before func(wait job.LockWait) error) *transactions {
	r, do := &transactions{}, s.do
	s.do = func(ctx context.Context, refs []job.Ref, wait job.LockWait) (report job.BatchResult, err error) {
		if before != nil {
			err = before(wait)
		}
		if err == nil {
			report, err = do(ctx, refs, wait)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.made = append(r.made, transaction{refs, wait, report})
		return report, err
	}
	return r
}

func (r *transactions) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.made)
}

// take returns the transactions since the last call.
func (r *transactions) take() []transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.made
	r.made = nil
	return made
}

// waits counts the transactions that may have waited.
func (r *transactions) waits() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.made {
		if one.wait != job.SkipLocked {
			n++
		}
	}
	return n
}
