package job_test

import (
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// The oldest job is one that is queued and that workers can finish, in whatever message it is.
func TestTheBacklogKnowsTheOldestJobThatWorkersCanFinish(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var all []job.Request
	for _, key := range []string{"final", "paid by card", "oldest", "younger"} {
		one := request(key, key)
		fixture.Accept(t, db, one) // each in a message of its own
		all = append(all, one)
		servers.Exec(t, db, `UPDATE jobs SET accepted_at = accepted_at - $2 * interval '1 hour' WHERE id = $1`, one.ID, 10-len(all))
	}
	fail(t, db, all[0].ID)
	servers.Exec(t, db, `UPDATE jobs SET purchase_id = gen_random_uuid() WHERE id = $1`, all[1].ID)
	backlog, err := job.ReadBacklog(t.Context(), db, job.KindPurchase, job.KindDraw)
	got := backlog[job.KindPurchase]
	if err != nil || len(backlog) != 1 || got.Jobs != 4 || got.Job != all[2].ID || got.Campaign != all[2].CampaignID || got.Oldest.Round(time.Hour) != 7*time.Hour {
		t.Errorf("%+v, %v", backlog, err)
	}
	for _, one := range all[2:] {
		servers.Exec(t, db, `UPDATE jobs SET purchase_id = gen_random_uuid() WHERE id = $1`, one.ID)
	}
	if backlog, err = job.ReadBacklog(t.Context(), db, job.KindPurchase, job.KindDraw); err != nil || backlog[job.KindPurchase].Oldest != 0 {
		t.Errorf("when all wait for others: %+v, %v", backlog, err)
	}
}
