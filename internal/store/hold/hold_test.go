package hold_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// insert stores holds of two positions that end so much from now.
func insert(t *testing.T, db *pgxpool.Pool, campaignID uuid.UUID, user string, in ...time.Duration) (ids []uuid.UUID) {
	t.Helper()
	var b pgx.Batch
	var holds []hold.Hold
	for _, d := range in {
		holds = append(holds, hold.Hold{ID: job.NewID(), CampaignID: campaignID, UserID: user, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(d),
			Positions: []hold.Position{{Position: fixture.At(1, 1), Price: 100}, {Position: fixture.At(2, 1), Price: 200}}})
		ids = append(ids, holds[len(holds)-1].ID)
	}
	if err := hold.QueueInsert(&b, holds); err != nil {
		t.Fatal(err)
	}
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// touched sends one statement and returns how many rows it touched.
func touched(t *testing.T, db *pgxpool.Pool, queue func(b *pgx.Batch) *pgx.QueuedQuery) (n int) {
	t.Helper()
	var b pgx.Batch
	queue(&b).Exec(func(tag pgconn.CommandTag) error {
		n = int(tag.RowsAffected())
		return nil
	})
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

func due(t *testing.T, db *pgxpool.Pool, campaigns ...uuid.UUID) (ids []uuid.UUID) {
	t.Helper()
	rows, err := db.Query(t.Context(), hold.DueSQL, campaigns)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, hold.ScanDue)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range found {
		if d.Size != 2 || d.UserID != "a" || !slices.Contains(campaigns, d.CampaignID) {
			t.Errorf("due is %+v", d)
		}
		ids = append(ids, d.ID)
	}
	return ids
}

func TestAHoldIsOverAtItsDeadlineByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	db, id := fixture.DB(t), uuid.New()
	ids := insert(t, db, id, "a", -time.Second, time.Hour)
	if h := fixture.HoldNow(t, db, ids[0]); h.State != hold.Expired || h.EndedAt != nil || len(h.Positions) != 2 || h.Positions[1].Price != 200 {
		t.Errorf("one that is over is %+v", h)
	}
	if h := fixture.HoldNow(t, db, ids[1]); h.State != hold.Active {
		t.Errorf("one that is not is %+v", h)
	}
	if _, err := hold.Get(t.Context(), db, uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("one that is not there: %v", err)
	}
	if got := due(t, db, id); !slices.Equal(got, ids[:1]) {
		t.Errorf("due are %v", got)
	}
	var b pgx.Batch
	states := make(map[uuid.UUID]hold.State)
	hold.QueueGet(&b, ids, func(h hold.Hold) { states[h.ID] = h.State })
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil || states[ids[0]] != hold.Active || states[ids[1]] != hold.Active {
		t.Errorf("recorded are %v, %v", states, err) // who reads these knows what is due
	}
}

func TestAHoldEndsOnceAndAsOneThing(t *testing.T) {
	t.Parallel()
	db, id := fixture.DB(t), uuid.New()
	purchase, deadline := uuid.New(), time.Now().Add(2*time.Hour).Truncate(time.Microsecond)
	ends := map[hold.State]func(b *pgx.Batch, h uuid.UUID) *pgx.QueuedQuery{
		hold.Used: func(b *pgx.Batch, h uuid.UUID) *pgx.QueuedQuery {
			return hold.QueueUse(b, []uuid.UUID{h}, []uuid.UUID{purchase})
		},
		hold.Released: hold.QueueRelease,
		hold.Expired:  func(b *pgx.Batch, h uuid.UUID) *pgx.QueuedQuery { return hold.QueueExpire(b, []uuid.UUID{h}) },
	}
	for first, end := range ends {
		in := time.Hour
		if first == hold.Expired {
			in = -time.Second
		}
		mine, other := insert(t, db, id, "a", in)[0], insert(t, db, id, "a", in)[0]
		if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return end(b, mine) }); n != 1 {
			t.Errorf("%s: %d rows", first, n)
		}
		before := fixture.HoldNow(t, db, mine)
		if before.State != first || before.EndedAt == nil || (before.PurchaseID != nil) != (first == hold.Used) {
			t.Errorf("%s: it is %+v", first, before)
		}
		if h := fixture.HoldNow(t, db, other); h.EndedAt != nil {
			t.Errorf("%s: another is %+v", first, h)
		}
		for second, again := range ends {
			if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return again(b, mine) }); n != 0 {
				t.Errorf("%s, then %s: %d rows", first, second, n)
			}
		}
		if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return hold.QueueExtend(b, mine, deadline) }); n != 0 {
			t.Errorf("%s, then extended: %d rows", first, n)
		}
		if after := fixture.HoldNow(t, db, mine); after.State != first || !after.EndedAt.Equal(*before.EndedAt) {
			t.Errorf("%s: later it is %+v", first, after)
		}
	}
	young := insert(t, db, id, "a", time.Hour)[0]
	if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return hold.QueueExpire(b, []uuid.UUID{young}) }); n != 0 {
		t.Error("one that is not due was ended")
	}
	if n := touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return hold.QueueExtend(b, young, deadline) }); n != 1 {
		t.Error("it was not extended")
	}
	if h := fixture.HoldNow(t, db, young); !h.ExpiresAt.Equal(deadline) || h.Extensions != 1 || h.State != hold.Active {
		t.Errorf("extended it is %+v", h)
	}
}

func TestTheCampaignsWithTheOldestDueHoldsAreFoundFirst(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	old, middle, young, ended := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	insert(t, db, young, "a", -time.Second, time.Hour)
	insert(t, db, old, "a", -time.Hour, -time.Minute)
	insert(t, db, middle, "a", -30*time.Minute)
	insert(t, db, uuid.New(), "a", time.Hour)
	touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery {
		return hold.QueueExpire(b, insert(t, db, ended, "a", -2*time.Hour))
	})
	for limit, want := range map[int][]uuid.UUID{1: {old}, 2: {old, middle}, 3: {old, middle}, 4: {old, middle, young}, 100: {old, middle, young}} {
		got, err := hold.CampaignsWithDue(t.Context(), db, []uuid.UUID{}, limit)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("up to %d: %v, %v; want %v", limit, got, err, want)
		}
	}
	if got, err := hold.CampaignsWithDue(t.Context(), db, []uuid.UUID{old, young}, 1); err != nil || !slices.Equal(got, []uuid.UUID{middle}) {
		t.Errorf("but for two: %v, %v", got, err)
	}
}

func TestOnlyHoldsThatEndedLongAgoAreDeleted(t *testing.T) {
	t.Parallel()
	db, id := fixture.DB(t), uuid.New()
	ids := insert(t, db, id, "a", -48*time.Hour, time.Hour, time.Hour, time.Hour, time.Hour) // the first is due for long, and nobody has ended it
	touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery {
		return hold.QueueUse(b, ids[1:3], []uuid.UUID{uuid.New(), uuid.New()})
	})
	touched(t, db, func(b *pgx.Batch) *pgx.QueuedQuery { return hold.QueueRelease(b, ids[3]) })
	if _, err := db.Exec(t.Context(), `UPDATE holds SET ended_at = clock_timestamp() - interval '25 h' WHERE id = ANY($1)`, []uuid.UUID{ids[1], ids[3]}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 1, 0} {
		if n, err := hold.DeleteEnded(t.Context(), db, 24*time.Hour, 1); n != want || err != nil {
			t.Errorf("%d deleted, %v; want %d", n, err, want)
		}
	}
	for i, there := range []bool{true, false, true, false, true} {
		if _, err := hold.Get(t.Context(), db, ids[i]); (err == nil) != there {
			t.Errorf("hold %d: %v", i, err)
		}
	}
}

func TestWhatBecomesOfHoldsIsCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := hold.NewMetrics(registry)
	m.Count(hold.EventMade, 2)
	m.Count(hold.EventExpired, 0)
	(*hold.Metrics)(nil).Count(hold.EventMade, 1)
	found, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := make(map[string]float64)
	for _, series := range found[0].GetMetric() {
		counted[series.GetLabel()[0].GetValue()] = series.GetCounter().GetValue()
	}
	want := map[string]float64{"made": 2, "used": 0, "released": 0, "extended": 0, "expired": 0, "reclaimed": 0}
	if !maps.Equal(counted, want) {
		t.Errorf("counted %v", counted)
	}
}
