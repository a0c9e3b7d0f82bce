package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// waitsOf returns how each of the transactions since the last call has waited.
func waitsOf(made *transactions) (waits []sale.Wait) {
	for _, one := range made.take() {
		waits = append(waits, one.wait)
	}
	return waits
}

// For either kind of job: with any rows locked and its jobs put off any number of times,
// a batch finalizes first what it can, and then waits twice at most, for a bounded time.
// After a wait in vain the shard, of which all kinds are part, goes on without waiting.
func TestAShardIsPatientForAShortTimeAndNotAgainSoon(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient) // no wait ends by itself but those of the shard
	free := fixture.Campaign(t, w.db, fixture.Draft(5))
	finalizers := map[*finalizer]func(campaignID uuid.UUID) job.Ref{
		w.purchases:     func(id uuid.UUID) job.Ref { return order(t, w, id, "a").Jobs[0] },
		w.cancellations: func(id uuid.UUID) job.Ref { return takeBack(t, w, id, 1)[0] },
	}
	for s, ask := range finalizers {
		made := record(s, nil)
		l := w.shards[0]
		l.noWaitUntil = time.Time{}
		var held []*item
		var unlocks []func()
		for range 3 {
			id := fixture.Campaign(t, w.db, fixture.Draft(5))
			held = append(held, &item{Ref: ask(id), putOff: walletAfter})
			unlocks = append(unlocks, lock(t, w, id))
		}
		flush := func(want verdict, waits ...sale.Wait) {
			t.Helper()
			verdicts, err := l.flush(t.Context(), s, append(slices.Clone(held), &item{Ref: ask(free)}))
			if err != nil || !slices.Equal(verdicts, []verdict{want, want, want, done}) {
				t.Errorf("%s: %v, %v", s.kind, verdicts, err)
			}
			if got := waitsOf(made); !slices.Equal(got, waits) {
				t.Errorf("%s: the transactions waited %+v", s.kind, got)
			}
		}
		flush(locked, sale.SkipLocked, waitForCampaign, waitForCampaign)
		if !l.noWaitUntil.After(time.Now()) {
			t.Errorf("%s: after waits in vain it would wait again at once", s.kind)
		}
		l.noWaitUntil = time.Now().Add(time.Hour)
		for range 3 {
			flush(locked, sale.SkipLocked)
		}
		alone := []*item{held[0]}
		if _, err := l.flush(t.Context(), s, alone); err != nil || !slices.Equal(waitsOf(made), []sale.Wait{sale.SkipLocked}) {
			t.Errorf("%s: a batch of one campaign waited, %v", s.kind, err)
		}
		l.noWaitUntil = time.Now()
		if _, err := l.flush(t.Context(), s, alone); err != nil || !slices.Equal(waitsOf(made), []sale.Wait{waitForCampaign}) || !l.noWaitUntil.After(time.Now()) {
			t.Errorf("%s: a batch of one campaign, later: %v", s.kind, err)
		}
		for _, unlock := range unlocks {
			unlock()
		}
		flush(done, sale.SkipLocked) // what is free needs no wait
	}
	fixture.Sound(t, w.db)
}

// A job whose wallet is locked waits for its campaign first, so that the others of the
// campaign are final; then it waits for the wallet alone.
func TestAShardWaitsForAWalletLast(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	id, other := fixture.Campaign(t, w.db, fixture.Draft(6)), fixture.Campaign(t, w.db, fixture.Draft(6))
	mina := fixture.Wallet(t, w.db, "mina", 1000)
	refs := fixture.Accept(t, w.db, fixture.WalletRequest(t, id, "mina", 6, 1), fixture.PurchaseRequest(t, id, "otto", 6, 1), fixture.PurchaseRequest(t, other, "otto", 6, 1))
	items := []*item{{Ref: refs[0], putOff: walletAfter}, {Ref: refs[1], putOff: turnAfter}, {Ref: refs[2]}}
	made := record(w.purchases, nil)
	unlock := fixture.LockWallet(t, w.db, mina)
	verdicts, err := w.shards[0].flush(t.Context(), w.purchases, items)
	if err != nil || !slices.Equal(verdicts, []verdict{busy, done, done}) {
		t.Errorf("%v, %v", verdicts, err)
	}
	if got := waitsOf(made); !slices.Equal(got, []sale.Wait{sale.SkipLocked, waitForCampaign, waitForWallets}) {
		t.Errorf("the transactions waited %+v", got)
	}
	unlock()
	if verdicts, err = w.shards[0].flush(t.Context(), w.purchases, items[:1]); err != nil || verdicts[0] != done {
		t.Errorf("%v, %v", verdicts, err)
	}
	expect(t, w.db, refs[0].ID, job.Succeeded, 1)
	fixture.Sound(t, w.db)
}

// Of many campaigns that are locked, none waits behind the same others every time.
func TestEveryLockedCampaignGetsItsTurn(t *testing.T) {
	t.Parallel()
	var items []*item
	left := make(map[uuid.UUID]verdict)
	for range 4 {
		items = append(items, putOff(uuid.New(), turnAfter)...)
	}
	for _, it := range items {
		left[it.ID] = locked
	}
	first := make(map[uuid.UUID]bool)
	servers.Eventually(t, "each was the first", func() bool {
		for id := range turns(items, left) {
			first[id] = true
			break
		}
		return len(first) == len(items)
	})
}
