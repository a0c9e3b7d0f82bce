//go:build failpoint

package worker

import (
	"errors"
	"testing"
	"time"

	"triprize/internal/campaign"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
)

func TestADrawThatAnotherWorkerTookOverIsPutOffAndNotCounted(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(3))
	ref := fixture.SellOut(t, w.db, id)
	deliveredBefore(t, w, 2, ref.ID)
	var heir campaign.Execution
	remove := failpoint.Set("draw.record", id.String(), func() {
		_, err := w.db.Exec(t.Context(), `UPDATE campaigns SET execution_locked_at = clock_timestamp() - interval '1 hour' WHERE id = $1`, id)
		if err != nil {
			t.Error(err)
		}
		var ok bool
		if heir, ok, err = campaign.Claim(t.Context(), w.db, id, "a worker", time.Hour); err != nil || !ok {
			t.Errorf("not taken over: %v, %v", ok, err)
		}
	})
	defer remove()
	if err := w.serially(job.KindDraw, w.draw)(t.Context(), []job.Ref{ref}, true); !errors.Is(err, campaign.ErrFenced) || !errors.Is(err, queue.ErrSnoozed) {
		t.Errorf("got %v", err)
	}
	expect(t, w.db, ref.ID, job.Queued, 2)
	if err := heir.Renew(t.Context(), w.db); err != nil {
		t.Errorf("the heir lost its lock: %v", err)
	}
}
