package worker

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/queue"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// waiting returns items of a campaign that were passed over so often.
func waiting(campaignID uuid.UUID, passedOver ...int) []*item {
	items := make([]*item, len(passedOver))
	for i, n := range passedOver {
		items[i] = &item{Ref: job.Ref{ID: job.NewID(), CampaignID: campaignID}, passedOver: n}
	}
	return items
}

func TestSeveralCampaignsAreSoldInACrowdAndASingleOneWaitsItsTurn(t *testing.T) {
	t.Parallel()
	a, b, c := uuid.New(), uuid.New(), uuid.New()
	for name, want := range map[string]struct {
		items []*item
		crowd []int // indexes of items
		turns map[uuid.UUID][]int
	}{
		"nothing":                  {nil, nil, nil},
		"one job":                  {waiting(a, 0), nil, map[uuid.UUID][]int{a: {0}}},
		"one campaign":             {waiting(a, 0, 1, patience-1), nil, map[uuid.UUID][]int{a: {0, 1, 2}}},
		"two campaigns":            {slices.Concat(waiting(a, 0), waiting(b, 0), waiting(a, 0)), []int{0, 1, 2}, nil},
		"shortly before patience":  {slices.Concat(waiting(a, patience-1), waiting(b, 0)), []int{0, 1}, nil},
		"one lost patience":        {slices.Concat(waiting(a, patience), waiting(b, 0), waiting(c, 0)), []int{1, 2}, map[uuid.UUID][]int{a: {0}}},
		"long after patience":      {slices.Concat(waiting(a, 2*patience), waiting(b, 0), waiting(c, 0)), []int{1, 2}, nil},
		"shortly before":           {slices.Concat(waiting(a, 2*patience-1), waiting(b, 0), waiting(c, 0)), []int{1, 2}, map[uuid.UUID][]int{a: {0}}},
		"one lost it, one is left": {slices.Concat(waiting(a, patience), waiting(b, 0, 1)), nil, map[uuid.UUID][]int{a: {0}, b: {1, 2}}},
		"all lost it":              {slices.Concat(waiting(a, patience, patience), waiting(b, patience)), nil, map[uuid.UUID][]int{a: {0, 1}, b: {2}}},
		"only some jobs lost it":   {slices.Concat(waiting(a, patience, 0), waiting(b, 0)), []int{1, 2}, map[uuid.UUID][]int{a: {0}}},
		"of one campaign, some":    {waiting(a, 0, patience, 0), nil, map[uuid.UUID][]int{a: {1, 0, 2}}},
	} {
		refs := func(indexes []int) (refs []job.Ref) {
			for _, i := range indexes {
				refs = append(refs, want.items[i].Ref)
			}
			return refs
		}
		crowd, turns, overdue := queueUp(want.items)
		if lost := name == "long after patience"; lost != (len(overdue) == 1) || lost && !slices.Equal(overdue[a], refs([]int{0})) {
			t.Errorf("%s: those that wait for a wallet are %v", name, overdue)
		}
		if !slices.Equal(crowd, refs(want.crowd)) {
			t.Errorf("%s: the crowd is %v of %v", name, crowd, want.items)
		}
		if len(turns) != len(want.turns) {
			t.Errorf("%s: the turns are %v", name, turns)
		}
		for id, indexes := range want.turns {
			if !slices.Equal(turns[id], refs(indexes)) {
				t.Errorf("%s: the turn of %s is %v", name, id, turns[id])
			}
		}
	}
}

func TestALockedCampaignIsPassedOverAndWaitedForWhenPatienceEnds(t *testing.T) {
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
	for i := range patience {
		verdicts, passer := flush()
		if !slices.Equal(verdicts, []verdict{busy, done, busy}) || held[0].passedOver != i+1 || held[1].passedOver != i+1 {
			t.Errorf("batch %d: %v, passed over %d and %d times", i, verdicts, held[0].passedOver, held[1].passedOver)
		}
		expect(t, w.db, passer, job.Succeeded, 1)
		expect(t, w.db, held[0].ID, job.Queued, 0)
	}
	last := make(chan []verdict, 1)
	go func() {
		verdicts, _ := flush()
		last <- verdicts
	}()
	awaitWaiter(t, w)
	unlock()
	if verdicts := <-last; !slices.Equal(verdicts, []verdict{done, done, done}) {
		t.Errorf("the last batch: %v", verdicts)
	}
	for _, it := range held {
		expect(t, w.db, it.ID, job.Succeeded, 1)
	}
	fixture.Sound(t, w.db)
}

func TestACampaignThatStaysLockedHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	locked, free := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, locked)
	held, passer := order(t, w, locked, "a", "b").Jobs, order(t, w, free, "a").Jobs
	settled := make(chan error, 1)
	go func() { settled <- w.settlePurchases(t.Context(), slices.Concat(held, passer), false) }()
	eventually(t, "the free campaign's job is done", func() bool { return final(t, w, passer[0].ID) })
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

func TestAFaultOfTheSurroundingsIsWaitedOut(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	settings := fixture.Settings(t)
	impatient(&settings)
	w := newWorkerOn(t, settings, registry)
	locked := fixture.Campaign(t, w.db, fixture.Draft(5))
	unlock := lock(t, w, locked)
	jobs := order(t, w, locked, "a").Jobs
	settled := make(chan error, 1)
	go func() { settled <- w.settlePurchases(t.Context(), jobs, false) }()
	eventually(t, "an attempt fails", func() bool { return counter(t, registry, "triprize_surroundings_faults_total") > 0 })
	unlock()
	if err := <-settled; err != nil {
		t.Error(err)
	}
	expect(t, w.db, jobs[0].ID, job.Succeeded, 1)
}

func TestABatchThatTheSurroundingsFailedIsNotTriedInHalves(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	settings := fixture.Settings(t)
	settings.Worker.Lanes = 1
	impatient(&settings)
	w := newWorkerOn(t, settings, registry)
	locked := fixture.Campaign(t, w.db, fixture.Draft(5))
	lock(t, w, locked)
	l := w.lanes[0]
	w.crowd.Lock() // until all are there: the first batch may have taken some of them
	for _, ref := range order(t, w, locked, "a", "b", "c", "d", "e", "f", "g", "h").Jobs {
		if err := l.items.Submit(&item{Ref: ref}); err != nil {
			t.Fatal(err)
		}
	}
	w.crowd.Unlock()
	l.close()
	if n := counter(t, registry, "triprize_surroundings_faults_total"); n < 1 || n > 2 {
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

func TestAWorkerThatShutsDownGivesBackWhatOnlyWaits(t *testing.T) {
	t.Parallel()
	w := newWorker(t, impatient)
	locked, free := fixture.Campaign(t, w.db, fixture.Draft(5)), fixture.Campaign(t, w.db, fixture.Draft(5))
	lock(t, w, locked)
	held, passer := order(t, w, locked, "a").Jobs, order(t, w, free, "a").Jobs
	settled := make(chan error, 1)
	go func() { settled <- w.settlePurchases(t.Context(), slices.Concat(held, passer), false) }()
	eventually(t, "the free campaign's job is done", func() bool { return final(t, w, passer[0].ID) })
	close(w.draining)
	select {
	case err := <-settled:
		if !errors.Is(err, errDraining) || !errors.Is(err, queue.ErrLater) {
			t.Errorf("got %v", err)
		}
	case <-time.After(30 * time.Second):
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
	for w.db.Stat().AcquiredConns() < 2 { // the lock's, and the batch's that waits for it
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	w.lanes[0].close()
	if took := time.Since(began); took > batchTimeout/2 {
		t.Errorf("it took %s", took)
	}
	if errs := <-over; !errors.Is(errs[0], batch.ErrClosed) {
		t.Errorf("got %v", errs)
	}
	expect(t, w.db, ref.ID, job.Queued, 0)
}

func TestACampaignIsAlwaysInTheSameLane(t *testing.T) {
	t.Parallel()
	w := &Worker{lanes: []*lane{{}, {}, {}}}
	jobs := make(map[*lane]int)
	for range 300 {
		id := job.NewID()
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
