//go:build failpoint

package worker

import (
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
)

func TestBatchesOfAShardTakeTurns(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	user, moments := uuid.NewString(), 0
	alone := func() {
		if moments++; w.shards[0].running.TryLock() {
			w.shards[0].running.Unlock()
			t.Error("somebody else could have the turn")
		}
	}
	bought := fixture.Buy(t, w.db, id, user, 0, 1)
	back := fixture.Accept(t, w.db, fixture.CancelRequest(t, id, bought))
	atCommit(t, user, alone)
	t.Cleanup(failpoint.Set("cancellation.commit", user, alone))
	if _, err := w.shards[0].flush(t.Context(), w.purchases, []*item{{Ref: order(t, w, id, user).Jobs[0]}}); err != nil {
		t.Fatal(err)
	}
	if err := w.cancellations.jobs(t.Context(), back, false); err != nil {
		t.Fatal(err)
	}
	if moments != 2 {
		t.Errorf("%d moments", moments)
	}
	expect(t, w.db, back[0].ID, job.Succeeded, 1)
}
