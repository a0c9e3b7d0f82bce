package worker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

func TestALockedCampaignIsPutOffAndThenWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	locked, free := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, locked)
	var held []*item
	for _, ref := range order(t, w, locked, "a", "b").Jobs {
		held = append(held, &item{Ref: ref})
	}
	flush := func() ([]verdict, uuid.UUID) {
		passer := &item{Ref: order(t, w, free, "c").Jobs[0]}
		verdicts, err := w.lanes[0].flush(t.Context(), []*item{held[0], passer, held[1]})
		if err != nil {
			t.Error(err)
		}
		return verdicts, passer.ID
	}
	for i := range turnAfter {
		verdicts, passer := flush()
		if !slices.Equal(verdicts, []verdict{busy, done, busy}) || held[0].putOff != i+1 || held[1].putOff != i+1 {
			t.Errorf("batch %d: %v, put off %d and %d times", i, verdicts, held[0].putOff, held[1].putOff)
		}
		expect(t, w.db, passer, job.Succeeded, 1)
		expect(t, w.db, held[0].ID, job.Queued, 0)
	}
	last := make(chan []verdict, 1)
	go func() {
		verdicts, _ := flush()
		last <- verdicts
	}()
	fixture.AwaitBlocked(t, w.db, 1)
	unlock()
	if verdicts := <-last; !slices.Equal(verdicts, []verdict{done, done, done}) {
		t.Errorf("the last batch: %v", verdicts)
	}
	for _, it := range held {
		expect(t, w.db, it.ID, job.Succeeded, 1)
	}
	fixture.Sound(t, w.db)
}

func TestACampaignThatStaysLockedDelaysNoOther(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	locked, free := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, locked)
	held, passer := order(t, w, locked, "a", "b").Jobs, order(t, w, free, "a").Jobs
	settled := make(chan error, 1)
	go func() { settled <- w.settlePurchases(t.Context(), slices.Concat(held, passer), false) }()
	fixture.Eventually(t, "the free campaign's job is done", func() bool { return final(t, w, passer[0].ID) })
	later := order(t, w, free, "b").Jobs
	if err := w.settlePurchases(t.Context(), later, false); err != nil || !final(t, w, later[0].ID) {
		t.Errorf("a later job of the free campaign: %v", err)
	}
	for _, ref := range held {
		expect(t, w.db, ref.ID, job.Queued, 0)
	}
	unlock()
	if err := <-settled; err != nil {
		t.Error(err)
	}
	for _, ref := range held {
		expect(t, w.db, ref.ID, job.Succeeded, 1)
	}
	fixture.Sound(t, w.db)
}

func TestATransientFaultIsWaitedOut(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	settings := workerSettings(t)
	impatient(&settings)
	w := newWorkerOn(t, settings, registry)
	locked := fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, locked)
	jobs := order(t, w, locked, "a").Jobs
	settled := make(chan error, 1)
	go func() { settled <- w.settlePurchases(t.Context(), jobs, false) }()
	fixture.Eventually(t, "an attempt fails", func() bool { return counter(t, registry, "triprize_transient_faults_total") > 0 })
	unlock()
	if err := <-settled; err != nil {
		t.Error(err)
	}
	expect(t, w.db, jobs[0].ID, job.Succeeded, 1)
}

func TestABatchThatFailedByATransientFaultIsNotTriedInHalves(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	settings := workerSettings(t)
	settings.Worker.Lanes = 1
	impatient(&settings)
	w := newWorkerOn(t, settings, registry)
	locked := fixture.Campaign(t, w.db, fixture.Draft(5))
	lock(t, w, locked)
	l := w.lanes[0]
	w.exclusive.Lock() // until all are there: the first batch may have taken some of them
	for _, ref := range order(t, w, locked, "a", "b", "c", "d", "e", "f", "g", "h").Jobs {
		if err := l.items.Submit(&item{Ref: ref}); err != nil {
			t.Fatal(err)
		}
	}
	w.exclusive.Unlock()
	l.close()
	if n := counter(t, registry, "triprize_transient_faults_total"); n < 1 || n > 2 {
		t.Errorf("8 jobs of a locked campaign were tried %v times", n)
	}
}

// counter reads a metric.
func counter(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func TestAJobThatFailsByItselfIsAnErrorAfterTheOthersHadTheirTurn(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(5))
	jobs := order(t, w, id, "a", "b", "c", "d", "e").Jobs
	spoil(t, w, jobs[1].ID)
	if err := w.settlePurchases(t.Context(), jobs, false); err == nil || errors.Is(err, queue.ErrLater) {
		t.Errorf("got %v", err)
	}
	for i, ref := range jobs {
		if i == 1 {
			expect(t, w.db, ref.ID, job.Queued, 0)
		} else {
			expect(t, w.db, ref.ID, job.Succeeded, 1)
		}
	}
}

func TestAWorkerThatShutsDownGivesBackJobsThatWait(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	locked, free := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	lock(t, w, locked)
	held, passer := order(t, w, locked, "a").Jobs, order(t, w, free, "a").Jobs
	settled := make(chan error, 1)
	go func() { settled <- w.settlePurchases(t.Context(), slices.Concat(held, passer), false) }()
	fixture.Eventually(t, "the free campaign's job is done", func() bool { return final(t, w, passer[0].ID) })
	close(w.draining)
	select {
	case err := <-settled:
		if !errors.Is(err, errDraining) || !errors.Is(err, queue.ErrLater) {
			t.Errorf("got %v", err)
		}
	case <-time.After(fixture.Patience):
		t.Fatal("it still waits")
	}
	expect(t, w.db, held[0].ID, job.Queued, 0)
}

// A batch that hangs must not hold up the end of the process: what was not
// committed is in the outbox.
func TestALaneThatHangsIsEndedAtShutdown(t *testing.T) {
	t.Parallel()
	w := newWorker(t, patient)
	id := fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, id)
	defer unlock()
	ref := order(t, w, id, "a").Jobs[0]
	over := make(chan []error, 1)
	go func() {
		_, errs := w.lanes[0].items.DoAll(t.Context(), []*item{{Ref: ref}})
		over <- errs
	}()
	fixture.AwaitBlocked(t, w.db, 1)
	w.lanes[0].close()
	if errs := <-over; !errors.Is(errs[0], batch.ErrClosed) { // not by the batch's own timeout
		t.Errorf("got %v", errs)
	}
	expect(t, w.db, ref.ID, job.Queued, 0)
}

func TestACampaignIsAlwaysInTheSameLane(t *testing.T) {
	t.Parallel()
	w := &Worker{lanes: []*lane{{}, {}, {}}}
	jobs := make(map[*lane]int)
	for range 300 {
		id := uuidv7.New()
		l := w.laneOf(id)
		if again := w.laneOf(id); again != l {
			t.Fatalf("%s is in two lanes", id)
		}
		jobs[l]++
	}
	if len(jobs) != 3 {
		t.Errorf("of three lanes %d are used by campaigns of one moment", len(jobs))
	}
}
