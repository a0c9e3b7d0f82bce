package worker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/config"
	"triprize/internal/platform/idempotency"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var errPanicked = errors.New("panicked")

// messageFor returns a message for n new jobs and some that others have.
func messageFor(n int, others ...job.Ref) outbox.Message {
	message := outbox.Message{ID: uuidv7.New(), Kind: job.KindPurchase, Delivery: 1, Jobs: others}
	for range n {
		message.Jobs = append(message.Jobs, job.Ref{ID: uuidv7.New(), CampaignID: uuid.New()})
	}
	return message
}

func TestJobsThatAnotherWorkerHasClaimedAreLeftToIt(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	first, second := newWorkerWith(t, settings), newWorkerWith(t, settings)
	message := messageFor(3)
	if jobs, leftOut := first.claims.take(t.Context(), message); !slices.Equal(jobs, message.Jobs) || leftOut {
		t.Fatalf("the first took %v, left some out: %v", jobs, leftOut)
	}
	overlapping := messageFor(2, message.Jobs[1])
	if jobs, leftOut := second.claims.take(t.Context(), overlapping); !slices.Equal(jobs, overlapping.Jobs[1:]) || !leftOut {
		t.Errorf("the second took %v, left some out: %v", jobs, leftOut)
	}
	if jobs, leftOut := second.claims.take(t.Context(), message); !slices.Equal(jobs, message.Jobs) || leftOut {
		t.Errorf("a message that is delivered again met its own claims: %v, %v", jobs, leftOut)
	}
	whole := messageFor(0, message.Jobs...)
	if jobs, leftOut := second.claims.take(t.Context(), whole); len(jobs) != 0 || !leftOut {
		t.Errorf("all of it is with another: %v, %v", jobs, leftOut)
	}
}

func TestAMessageIsDoneOnlyWhenNoneOfItsJobsIsLeftOut(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	first, second := newWorkerWith(t, settings), newWorkerWith(t, settings)
	id := fixture.Campaign(t, first.db, fixture.Draft(4))
	message := order(t, first, id, "a", "b", "c")
	elsewhere := messageFor(0, message.Jobs[1])
	if _, leftOut := first.claims.take(t.Context(), elsewhere); leftOut {
		t.Fatal("not taken")
	}
	err := deliver(t, second, second.finalizePurchases, message, false)
	if !errors.Is(err, errElsewhere) || !errors.Is(err, queue.ErrLater) {
		t.Errorf("got %v", err)
	}
	for i, want := range []job.State{job.Succeeded, job.Queued, job.Succeeded} {
		if j := fixture.Job(t, first.db, message.Jobs[i].ID); j.State != want {
			t.Errorf("job %d is %s", i, j.State)
		}
	}
	stop(second)
	if n := messages(t, first); n != 1 {
		t.Errorf("%d messages while a job is with another worker", n)
	}
	if err := first.finalizePurchases(t.Context(), elsewhere.Jobs, false); err != nil {
		t.Fatal(err)
	}
	first.claims.drop(elsewhere.Jobs)
	servers.Eventually(t, "it is known that the other job is final", func() bool { // its claim is overwritten by that
		return deliver(t, first, first.finalizePurchases, message, true) == nil
	})
	stop(first)
	if n := messages(t, first); n != 0 {
		t.Errorf("%d messages when all is done", n)
	}
	fixture.Sound(t, first.db)
}

// Another worker could else begin a job that still waits, or wait for one that is final.
func TestAClaimIsGivenBackWhenItsJobIsFinalAndNoEarlier(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	message := messageFor(2)
	w.claims.take(t.Context(), message)
	ended, waits := message.Jobs[0].ID, message.Jobs[1].ID
	w.afterCommit.changed(waits)
	w.afterCommit.finalized([]job.Outcome{{ID: ended}})
	stop(w)
	if busy, err := w.claims.Claim(t.Context(), "another", []uuid.UUID{ended, waits}); err != nil || !slices.Equal(busy, []uuid.UUID{waits}) {
		t.Errorf("%v are busy, %v; want %s", busy, err, waits)
	}
}

func TestAFailedDeliveryLeavesTheMessageInTheOutbox(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	message := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), "a")
	broken := errors.New("broken")
	for _, c := range []struct {
		redelivered bool
		number      int
		again       bool
	}{{false, 1, false}, {true, 1, true}, {false, 2, true}, {true, 3, true}} {
		message.Delivery = c.number
		err := deliver(t, w, func(_ context.Context, jobs []job.Ref, again bool) error {
			if again != c.again || !slices.Equal(jobs, message.Jobs) {
				t.Errorf("redelivered %v, message number %d: again is %v, the jobs %v", c.redelivered, c.number, again, jobs)
			}
			return broken
		}, message, c.redelivered)
		if !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	}
	for _, payload := range []string{"{", "{}", "null", `{"delivery":1,"campaigns":{}}`} { // they are dropped
		if err := w.handle(w.finalizePurchases)(t.Context(), queue.Task{ID: message.ID, Kind: "purchase", Payload: []byte(payload)}, false); err != nil {
			t.Errorf("%s: %v", payload, err)
		}
	}
	stop(w)
	if n := messages(t, w); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestWithoutRedisTheJobsAreDoneAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(s *config.Settings) { s.Redis.URL = "redis://127.0.0.1:1/0" })
	message := order(t, w, fixture.Campaign(t, w.db, fixture.Draft(4)), "a", "b")
	if err := deliver(t, w, w.finalizePurchases, message, false); err != nil {
		t.Fatal(err)
	}
	for _, ref := range message.Jobs {
		expect(t, w.db, ref.ID, job.Succeeded, 1)
	}
	stop(w)
	if n := messages(t, w); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

func TestClaimsAreKeptFreshUntilTheyAreDropped(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	settings.Idempotency.ClaimTTL = time.Hour
	rdb := servers.Redis(t, settings)
	claims := newClaims(idempotency.NewClaims(rdb, settings.Redis.Namespace, settings.Idempotency), settings.Idempotency.ClaimTTL, servers.Logger(t))
	claims.every = 5 * time.Millisecond
	kept, dropped := messageFor(1), messageFor(1)
	claims.take(t.Context(), kept)
	claims.take(t.Context(), dropped)
	claims.drop(dropped.Jobs)
	for _, key := range keys(t, rdb, settings.Redis.Namespace) {
		if err := rdb.Expire(t.Context(), key, 10*time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		claims.run(ctx)
		close(ended)
	}()
	fresh := func() (n int) { // all that are due are refreshed in one go
		for _, key := range keys(t, rdb, settings.Redis.Namespace) {
			if rdb.TTL(t.Context(), key).Val() > 10*time.Minute {
				n++
			}
		}
		return n
	}
	servers.Eventually(t, "a claim is refreshed", func() bool { return fresh() > 0 })
	cancel()
	<-ended
	if n := fresh(); n != 1 {
		t.Errorf("%d claims were refreshed", n)
	}
}

// keys lists the keys of a namespace.
func keys(t *testing.T, rdb *redis.Client, namespace string) []string {
	t.Helper()
	var all []string
	for scan := rdb.Scan(t.Context(), 0, namespace+"*", 1000).Iterator(); scan.Next(t.Context()); {
		all = append(all, scan.Val())
	}
	return all
}
