package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
)

// waitsOf returns how each of the transactions since the last call has waited.
func waitsOf(made *transactions) (waits []sale.LockWait) {
	for _, one := range made.take() {
		waits = append(waits, one.wait)
	}
	return waits
}

// For either kind of job: with any rows locked and its jobs tried any number of times, a batch finalizes
// first what it can. After a wait in vain the shard, of which all kinds are part, goes on without waiting.
func TestAShardIsPatientForAShortTimeAndNotAgainSoon(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient) // no wait ends by itself but those of the shard
	free := fixture.Campaign(t, w.db, fixture.Draft(5))
	finalizers := map[*finalizer]func(campaignID uuid.UUID) job.Ref{
		w.purchases:     func(id uuid.UUID) job.Ref { return order(t, w, id, "a").Jobs[0] },
		w.cancellations: func(id uuid.UUID) job.Ref { return takeBack(t, w, id, 1)[0] },
	}
	forCampaign := sale.LockWait{Campaign: lockWait}
	for s, ask := range finalizers {
		made := record(s, nil)
		l := w.shards[0]
		l.campaigns = waitBackoff{}
		var held []*item
		var unlocks []func()
		for range 3 {
			id := fixture.Campaign(t, w.db, fixture.Draft(5))
			held = append(held, &item{Ref: ask(id), retries: 1, verdict: campaignLocked})
			unlocks = append(unlocks, lock(t, w, id))
		}
		flush := func(want verdict, waits ...sale.LockWait) {
			t.Helper()
			verdicts, err := l.flush(t.Context(), s, append(slices.Clone(held), &item{Ref: ask(free)}))
			if err != nil || !slices.Equal(verdicts, []verdict{want, want, want, done}) {
				t.Errorf("%s: %v, %v", s.kind, verdicts, err)
			}
			if got := waitsOf(made); !slices.Equal(got, waits) {
				t.Errorf("%s: the transactions waited %+v", s.kind, got)
			}
		}
		l.campaigns.notBefore = time.Now().Add(time.Hour)
		for range 3 {
			flush(campaignLocked, sale.SkipLocked, sale.SkipLocked, sale.SkipLocked, sale.SkipLocked)
		}
		l.campaigns = waitBackoff{}
		flush(campaignLocked, forCampaign, forCampaign, sale.SkipLocked, sale.SkipLocked) // first the free one, then in vain
		if l.campaigns.allowed() {
			t.Errorf("%s: after a wait in vain it would wait again at once", s.kind)
		}
		alone := []*item{{Ref: held[0].Ref}}
		l.campaigns.notBefore = time.Now().Add(time.Hour)
		if _, err := l.flush(t.Context(), s, alone); err != nil || !slices.Equal(waitsOf(made), []sale.LockWait{sale.SkipLocked}) {
			t.Errorf("%s: a batch of one campaign waited, %v", s.kind, err)
		}
		l.campaigns = waitBackoff{}
		if _, err := l.flush(t.Context(), s, alone); err != nil || !slices.Equal(waitsOf(made), []sale.LockWait{forCampaign}) || l.campaigns.allowed() {
			t.Errorf("%s: a batch of one campaign, later: %v", s.kind, err)
		}
		for _, unlock := range unlocks {
			unlock()
		}
		flush(done, sale.SkipLocked, sale.SkipLocked, sale.SkipLocked, sale.SkipLocked)
	}
	fixture.Sound(t, w.db)
}

// Jobs whose wallet stays locked go by themselves, after the others of their campaign, and wait for it.
func TestAShardWaitsForAWalletLast(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	id, other := fixture.Campaign(t, w.db, fixture.Draft(6)), fixture.Campaign(t, w.db, fixture.Draft(6))
	mina := fixture.Wallet(t, w.db, "mina", 1000)
	refs := fixture.Accept(t, w.db, fixture.WalletRequest(t, id, "mina", 6, 1), fixture.PurchaseRequest(t, id, "otto", 6, 1), fixture.PurchaseRequest(t, other, "otto", 6, 1))
	items := []*item{{Ref: refs[0], retries: walletRetry - 1, verdict: walletLocked}, {Ref: refs[1]}, {Ref: refs[2]}}
	made := record(w.purchases, nil)
	unlock := fixture.LockWallet(t, w.db, mina)
	flush := func(items []*item, want []verdict, waits ...sale.LockWait) {
		t.Helper()
		verdicts, err := w.shards[0].flush(t.Context(), w.purchases, items)
		if err != nil || !slices.Equal(verdicts, want) {
			t.Errorf("%v, %v", verdicts, err)
		}
		if got := waitsOf(made); !slices.Equal(got, waits) {
			t.Errorf("the transactions waited %+v", got)
		}
	}
	forCampaign, forWallets := sale.LockWait{Campaign: lockWait}, sale.LockWait{Campaign: lockWait, Wallets: walletWait}
	flush(items, []verdict{walletLocked, done, done}, sale.SkipLocked, forCampaign) // it is skipped
	items[0].retries++
	flush(items[:1], []verdict{walletLocked}, forWallets)
	flush(items[:1], []verdict{walletLocked}, sale.SkipLocked) // not again soon
	unlock()
	flush(items[:1], []verdict{done}, sale.SkipLocked)
	expect(t, w.db, refs[0].ID, job.Succeeded, 1)
	fixture.Sound(t, w.db)
}

func TestWaitsInVainBecomeRareUntilOneIsNot(t *testing.T) {
	t.Parallel()
	var p waitBackoff
	for _, want := range []time.Duration{waitPause, 2 * waitPause, 4 * waitPause, maxWaitPause, maxWaitPause} {
		if p.record(true); p.pause != want || p.allowed() {
			t.Errorf("a pause of %s, want %s; more waits: %t", p.pause, want, p.allowed())
		}
	}
	p.record(false)
	if p.record(true); p.pause != waitPause {
		t.Errorf("after one that was not in vain: %s", p.pause)
	}
}
