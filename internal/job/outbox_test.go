package job_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// alone accepts n jobs, each in a message of its own.
func alone(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	accepted(t, db, n)
	servers.Exec(t, db, `
		WITH together AS (DELETE FROM outbox_messages RETURNING kind, jobs)
		INSERT INTO outbox_messages (id, kind, jobs) SELECT gen_random_uuid(), kind, ARRAY[job] FROM together, unnest(jobs) AS job`)
}

// draws makes n jobs of the system.
func draws(t *testing.T, db *pgxpool.Pool, n int) {
	t.Helper()
	for range n {
		r := job.DrawRequest(uuid.New(), job.BySellOut, "", time.Hour, job.Origin{})
		for try := range 2 { // one is made once
			inTx(t, db, func(tx pgx.Tx) error {
				messages, err := job.Insert(t.Context(), tx, r)
				if len(messages) != 1-try {
					t.Errorf("try %d: %v", try, messages)
				}
				return err
			})
		}
	}
}

// age makes every message look as if it had been seen that long ago.
func age(t *testing.T, db *pgxpool.Pool, by time.Duration) {
	t.Helper()
	servers.Exec(t, db, `UPDATE outbox_messages SET seen_at = clock_timestamp() - $1 * interval '1 second'`, by.Seconds())
}

func reissue(t *testing.T, db *pgxpool.Pool, lost, orphaned []uuid.UUID) (messages []job.Message) {
	t.Helper()
	inTx(t, db, func(tx pgx.Tx) (err error) {
		messages, err = job.Reissue(t.Context(), tx, lost, orphaned)
		return err
	})
	return messages
}

func resume(t *testing.T, db *pgxpool.Pool, now time.Time, limit int, campaigns ...uuid.UUID) (messages []job.Message, replaced int) {
	t.Helper()
	inTx(t, db, func(tx pgx.Tx) (err error) {
		messages, replaced, err = job.Resume(t.Context(), tx, campaigns, now, limit)
		return err
	})
	return messages, replaced
}

// walk walks through overdue messages, a few at a time.
func walk(t *testing.T, db *pgxpool.Pool, backoff job.Backoff, few int, each func(ids []uuid.UUID)) {
	t.Helper()
	for messages, err := range job.Overdue(t.Context(), db, backoff, few) {
		servers.NoError(t, err)
		ids := make([]uuid.UUID, len(messages))
		for i, m := range messages {
			ids[i] = m.ID
		}
		each(ids)
	}
}

// overdue returns all overdue messages.
func overdue(t *testing.T, db *pgxpool.Pool, backoff job.Backoff) (all []uuid.UUID) {
	t.Helper()
	walk(t, db, backoff, 100, func(ids []uuid.UUID) { all = append(all, ids...) })
	return all
}

// minute is a backoff that is over for messages that were seen a minute ago.
func minute() job.Backoff {
	return job.Backoff{First: time.Second, Longest: 30 * time.Second, Deaths: 5}
}

// A draw may wait long, and its message with it: one beside it would wait, too.
func TestLostMessagesAreBundledButForDrawsAndLeaveOutWhatIsDone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	const n, drawn = 600, 5
	alone(t, db, n)
	done := servers.Value[uuid.UUID](t, db, `SELECT id FROM jobs LIMIT 1`)
	fail(t, db, done)
	draws(t, db, drawn)
	age(t, db, time.Minute)
	lost := overdue(t, db, minute())
	if len(lost) != n+drawn {
		t.Fatalf("%d messages are overdue", len(lost))
	}
	messages := reissue(t, db, lost, nil)
	jobs := make(map[uuid.UUID]bool)
	for _, m := range messages {
		if len(m.Jobs) > job.MaxJobs || m.Delivery != 1 || m.Kind == job.KindDraw && len(m.Jobs) != 1 { // no worker has had them
			t.Errorf("message of %d jobs, delivery %d", len(m.Jobs), m.Delivery)
		}
		for _, j := range m.Jobs {
			jobs[j.ID] = true
		}
	}
	if len(messages) != 3+drawn || len(jobs) != n-1+drawn || jobs[done] {
		t.Errorf("%d messages for %d jobs", len(messages), len(jobs))
	}
	if again := reissue(t, db, lost, lost); len(again) != 0 {
		t.Errorf("a second sweep issues again what the first did: %v", again)
	}
	fixture.Sound(t, db)
}

func TestTheBackoffDoublesOnlyAfterMoreDeathsThanAJobSurvives(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	accepted(t, db, 1)
	backoff := job.Backoff{First: 10 * time.Hour, Longest: 60 * time.Hour, Deaths: 3}
	for i, hours := range []int{10, 10, 10, 20, 40, 60, 60} {
		want := time.Duration(hours) * time.Hour
		age(t, db, want/2)
		if ids := overdue(t, db, backoff); len(ids) != 0 {
			t.Errorf("message %d is overdue before %s", i+1, want)
		}
		age(t, db, want+time.Second)
		ids := overdue(t, db, backoff)
		if len(ids) != 1 {
			t.Fatalf("message %d is not overdue after %s", i+1, want)
		}
		reissue(t, db, ids, ids)
	}
	age(t, db, 61*time.Hour)
	servers.NoError(t, job.MarkSeen(t.Context(), db, overdue(t, db, backoff)))
	if ids := overdue(t, db, backoff); len(ids) != 0 {
		t.Errorf("overdue though they have been seen: %v", ids)
	}
}

func TestAWalkReturnsEveryOverdueMessageOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	const n = 100
	alone(t, db, n)
	age(t, db, time.Minute) // all at nearly the same moment: their ids decide
	servers.Exec(t, db, `UPDATE outbox_messages SET seen_at = (SELECT min(seen_at) FROM outbox_messages)`)
	var seen []uuid.UUID
	walk(t, db, minute(), 7, func(ids []uuid.UUID) {
		seen = append(seen, ids...)
		if err := job.MarkSeen(t.Context(), db, ids[:len(ids)/2]); err != nil { // some move, others stay
			t.Fatal(err)
		}
	})
	if slices.SortFunc(seen, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }); len(seen) != n || len(slices.Compact(seen)) != n {
		t.Errorf("%d of %d messages came", len(seen), n)
	}
}

// What waits for a campaign has no task, so nobody looks for it. It goes on when its campaign is free, with the
// same delivery, and without what is final.
func TestJobsWaitForTheirCampaignAndGoOnTogether(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	busy, other := uuid.New(), uuid.New()
	for i := range 3 {
		refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, busy, "a", 0, 1), fixture.PurchaseRequest(t, other, "b", 0, 1), fixture.PurchaseRequest(t, busy, "c", 0, 1))
		if i == 0 {
			fail(t, db, refs[0].ID, refs[1].ID)
		}
	}
	servers.Exec(t, db, `UPDATE outbox_messages SET delivery = 3`)
	for range 2 { // a message that is gone changes nothing
		for _, id := range overdue(t, db, job.Backoff{}) {
			servers.NoError(t, job.Snooze(t.Context(), db, id, nil))
		}
	}
	age(t, db, time.Hour)
	if lost := overdue(t, db, minute()); len(lost) != 0 {
		t.Errorf("%d messages are looked for", len(lost))
	}
	var now time.Time
	for _, limit := range []int{1, 2, 9} {
		awaited, at, err := job.FindAwaited(t.Context(), db, limit)
		if now = at; err != nil || len(awaited) != min(limit, 2) {
			t.Errorf("of at most %d awaited are %v, %v", limit, awaited, err)
		}
	}
	if n, err := job.CountAwaiting(t.Context(), db, busy); err != nil || n != 5 {
		t.Errorf("%d jobs wait, %v", n, err)
	}
	if _, replaced := resume(t, db, now.Add(-2*time.Hour), 4, busy, uuid.New()); replaced != 0 {
		t.Errorf("%d were put off after the run has begun, and are issued again in it", replaced)
	}
	for _, want := range []int{3, 2} { // half of the limit for each campaign: of the oldest two messages, one of them with a job that was final, and of the last
		messages, replaced := resume(t, db, now, 4, busy, uuid.New())
		if len(messages) != 1 || replaced == 0 || len(messages[0].Jobs) != want || messages[0].Delivery != 3 || messages[0].Jobs[0].CampaignID != busy {
			t.Errorf("%d replaced by %+v; want one of %d jobs", replaced, messages, want)
		}
	}
	if messages, replaced := resume(t, db, now, 4, busy, uuid.New()); len(messages) != 0 || replaced != 0 {
		t.Errorf("nothing waits any more: %d, %v", replaced, messages)
	}
	if awaited, _, err := job.FindAwaited(t.Context(), db, 9); err != nil || len(awaited) != 1 || awaited[0] != other {
		t.Errorf("awaited are %v, %v", awaited, err)
	}
	age(t, db, time.Hour)
	if lost := overdue(t, db, minute()); len(lost) != 2 {
		t.Errorf("%d messages are looked for", len(lost))
	}
	fixture.Sound(t, db)
}

// However many campaigns are free again, their jobs have few tasks: but those that were delivered before are tried
// a campaign at a time.
func TestJobsOfManyCampaignsGoOnTogether(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for delivery, want := range map[int]int{1: 1, 2: 5} {
		var campaigns []uuid.UUID
		for range 5 {
			id := uuid.New()
			campaigns = append(campaigns, id)
			fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 1))
			fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "b", 0, 1))
		}
		servers.Exec(t, db, `UPDATE outbox_messages SET delivery = $1, waits_for = (SELECT campaign_id FROM jobs WHERE id = jobs[1]), seen_at = clock_timestamp() - interval '1 minute'`, delivery)
		messages, _ := resume(t, db, time.Now(), 100, campaigns...)
		jobs := 0
		for _, m := range messages {
			jobs += len(m.Jobs)
		}
		if len(messages) != want || jobs != 10 {
			t.Errorf("delivery %d: %d jobs in %d messages, want 10 in %d", delivery, jobs, len(messages), want)
		}
		servers.Exec(t, db, `DELETE FROM outbox_messages`)
	}
}

// A job whose wallet stays locked is tried at a quarter of its age, and every 10 s at last; its neighbour whose
// campaign was locked goes on at once.
func TestJobsOfALockedWalletAreIssuedEverMoreSeldom(t *testing.T) {
	t.Parallel()
	db, _ := servers.DBWithClock(t)
	servers.Exec(t, db, `CREATE OR REPLACE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '2100-01-01Z' $$`) // it stands still: the first wait is a quarter of a second
	id := uuid.New()
	refs := fixture.Accept(t, db, fixture.PurchaseRequest(t, id, "a", 0, 1), fixture.PurchaseRequest(t, id, "b", 0, 1), fixture.PurchaseRequest(t, id, "c", 0, 1), fixture.PurchaseRequest(t, id, "d", 0, 1))
	for i, seconds := range []int{1, 21, 3600, 3600} {
		servers.Exec(t, db, `UPDATE jobs SET accepted_at = clock_timestamp() - $2 * interval '1 second' WHERE id = $1`, refs[i].ID, seconds)
	}
	wallets := []uuid.UUID{refs[0].ID, refs[1].ID, refs[2].ID}
	for _, message := range overdue(t, db, job.Backoff{}) {
		servers.NoError(t, job.Snooze(t.Context(), db, message, wallets))
	}
	_, now, err := job.FindAwaited(t.Context(), db, 1)
	servers.NoError(t, err)
	for i, after := range []time.Duration{0, 250 * time.Millisecond, 4 * time.Second, 10 * time.Second} {
		messages, _ := resume(t, db, now.Add(after+time.Microsecond), 9, id)
		if want := refs[[]int{3, 0, 1, 2}[i]].ID; len(messages) != 1 || len(messages[0].Jobs) != 1 || messages[0].Jobs[0].ID != want {
			t.Errorf("after %s: %+v; want the job %s", after, messages, want)
		}
	}
}
