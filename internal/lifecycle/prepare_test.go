//go:build failpoint

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// large is a base length whose 20,100 positions take three steps.
const large = 200

var steps = (shape.TriangleCount(large) + inventory.FillStep - 1) / inventory.FillStep

// publish publishes a campaign; nil: it is published.
func publish(ctx context.Context, s *lifecycle.Service, id uuid.UUID) error {
	done, err := s.Publish(ctx, request(job.KindCampaignPublish, id))
	return fixture.Refused(done, err)
}

// boundStatements makes the table refuse a statement that inserts or deletes more rows
// than a step, and counts the rows of the others.
func boundStatements(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	_, err := db.Exec(t.Context(), `
		CREATE TABLE changed (inserted integer, deleted integer);
		CREATE FUNCTION bound_inserts() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT count(*) FROM fresh) > 10000 THEN RAISE EXCEPTION 'too many at once'; END IF;
			INSERT INTO changed SELECT count(*), 0 FROM fresh; RETURN NULL; END $$;
		CREATE FUNCTION bound_deletes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT count(*) FROM gone) > 10000 THEN RAISE EXCEPTION 'too many at once'; END IF;
			INSERT INTO changed SELECT 0, count(*) FROM gone; RETURN NULL; END $$;
		CREATE TRIGGER bound_inserts AFTER INSERT ON positions REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION bound_inserts();
		CREATE TRIGGER bound_deletes AFTER DELETE ON positions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION bound_deletes()`)
	servers.NoError(t, err)
}

// complete checks that a board has every position once, at the price of the draft, in a random order.
func complete(t *testing.T, db *pgxpool.Pool, id uuid.UUID, baseLength int) {
	t.Helper()
	board, err := inventory.All(t.Context(), db, id)
	if err != nil || len(board) != shape.TriangleCount(baseLength) {
		t.Fatalf("%d positions, %v", len(board), err)
	}
	i := 0
	for at := range fixture.Triangle(baseLength).All() {
		if p := board[i]; p.Position != at || p.Price != money.Amount(100*at.Layer) || p.State != inventory.Available {
			t.Fatalf("position %v is %+v", at, p)
		}
		i++
	}
	ranks := servers.Value[[]int](t, db, `SELECT array_agg(rank ORDER BY layer, col) FROM positions WHERE campaign_id = $1`, id)
	if len(ranks) > 20 && slices.IsSorted(ranks) { // of six, one order in 720 is that
		t.Error("the ranks are in order")
	}
	if fills := servers.Value[int](t, db, `SELECT count(*) FROM position_fills`); fills != 0 {
		t.Errorf("%d notes on positions are left", fills)
	}
}

// cutOff publishes until some steps are done, and then as if the process had died.
func cutOff(t *testing.T, db *pgxpool.Pool, id uuid.UUID, after int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := 0
	defer failpoint.Set("lifecycle.step", id.String(), func() {
		if done++; done == after {
			cancel()
		}
	})()
	if err := publish(ctx, newService(t, db), id); !errors.Is(err, context.Canceled) {
		t.Fatalf("it was not cut off after %d of %d steps: %v", done, after, err)
	}
}

func TestALargeCampaignIsPublishedInStepsAndNobodySeesHalfOfIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	boundStatements(t, db)
	id, seen := pending(t, db, fixture.Draft(large)), 0
	remove := failpoint.Set("lifecycle.step", id.String(), func() {
		seen++
		d, err := lifecycle.Get(t.Context(), db, id)
		if err != nil || d.State != campaign.Pending || len(d.Counts) != 0 {
			t.Errorf("after step %d: %s with counts of %d layers, %v", seen, d.State, len(d.Counts), err)
		}
		if board, err := inventory.All(t.Context(), db, id); err != nil || len(board) != 0 {
			t.Errorf("after step %d: %d positions, %v", seen, len(board), err)
		}
		if _, err := inventory.Get(t.Context(), db, id, shape.Position{Layer: 1, Column: 1}); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("after step %d: %v", seen, err)
		}
		fixture.Sound(t, db)
	})
	defer remove()
	servers.NoError(t, publish(t.Context(), newService(t, db), id))
	if seen != steps {
		t.Errorf("%d steps, want %d", seen, steps)
	}
	complete(t, db, id, large)
	fixture.Sound(t, db)
}

// Positions that are made are kept, unless the draft is another by then.
func TestAPublicationThatWasCutOffIsContinuedOrBegunAnew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change     func(t *testing.T, db *pgxpool.Pool, s *lifecycle.Service, id uuid.UUID)
		baseLength int
		made       int // positions, in all
	}{
		"of the same draft": {func(*testing.T, *pgxpool.Pool, *lifecycle.Service, uuid.UUID) {}, large, shape.TriangleCount(large)},
		"of a draft with other prices, cut off again, and of the first draft": {func(t *testing.T, db *pgxpool.Pool, s *lifecycle.Service, id uuid.UUID) {
			reprice(t, s, id, 7)
			cutOff(t, db, id, 1) // in the middle of deleting
			if n := servers.Value[int](t, db, `SELECT count(*) FROM positions`); n != inventory.FillStep {
				t.Fatalf("%d positions are left", n)
			}
			reprice(t, s, id, 0) // the draft is again the one that the rest was made for
		}, large, 2*inventory.FillStep + shape.TriangleCount(large)},
		"of a small draft": {func(t *testing.T, _ *pgxpool.Pool, s *lifecycle.Service, id uuid.UUID) {
			small := fixture.Draft(3)
			if _, err := s.Patch(t.Context(), id, campaign.Patch{BaseLength: &small.BaseLength, Layers: small.Layers}); err != nil {
				t.Fatal(err)
			}
		}, 3, 2*inventory.FillStep + shape.TriangleCount(3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			boundStatements(t, db)
			id, service := pending(t, db, fixture.Draft(large)), newService(t, db)
			cutOff(t, db, id, 2)
			if n := servers.Value[int](t, db, `SELECT count(*) FROM positions`); n != 2*inventory.FillStep {
				t.Fatalf("%d positions are made", n)
			}
			fixture.Sound(t, db)
			c.change(t, db, service, id)
			servers.NoError(t, publish(t.Context(), service, id))
			complete(t, db, id, c.baseLength)
			if n := servers.Value[int](t, db, `SELECT sum(inserted) FROM changed`); n != c.made {
				t.Errorf("%d positions were made in all, want %d", n, c.made)
			}
			fixture.Sound(t, db)
		})
	}
}

// reprice makes each layer of a draft dearer.
func reprice(t *testing.T, s *lifecycle.Service, id uuid.UUID, by money.Amount) {
	t.Helper()
	layers := fixture.Draft(large).Layers
	for i := range layers {
		layers[i].Price += by
	}
	if _, err := s.Patch(t.Context(), id, campaign.Patch{Layers: layers}); err != nil {
		t.Fatal(err)
	}
}

func TestOfManyWhoPublishALargeCampaignOneDoes(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	boundStatements(t, db)
	id := pending(t, db, fixture.Draft(large))
	var published atomic.Int32
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := publish(t.Context(), newService(t, db), id); err == nil {
				published.Add(1)
			} else if fault.CodeOf(err) != fault.StateConflict {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := published.Load(); n != 1 {
		t.Errorf("%d have published it", n)
	}
	complete(t, db, id, large)
	if n := servers.Value[int](t, db, `SELECT sum(inserted) FROM changed`); n != shape.TriangleCount(large) {
		t.Errorf("%d positions were made in all", n)
	}
	fixture.Sound(t, db)
}

func TestAPendingCampaignThatIsCancelledShowsNoPositions(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := pending(t, db, fixture.Draft(large))
	cutOff(t, db, id, 1)
	servers.Exec(t, db, `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`, id)
	if board, err := inventory.All(t.Context(), db, id); err != nil || len(board) != 0 {
		t.Errorf("%d positions, %v", len(board), err)
	}
	if err := publish(t.Context(), newService(t, db), id); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("published: %v", err)
	}
	fixture.Sound(t, db)
}

func TestACancelledCampaignCanOnlyBeRenamed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	s, id := newService(t, db), fixture.Campaign(t, db, fixture.Draft(3))
	ends(t, canceller(t, db), order(t, db, id, byOps))
	for kind, do := range map[job.Kind]func(context.Context, job.Request) (job.Accepted, error){
		job.KindCampaignPublish: s.Publish, job.KindCampaignPause: s.Pause, job.KindCampaignResume: s.Resume,
	} {
		done, err := do(t.Context(), request(kind, id))
		expectRefused(t, string(kind), fixture.Refused(done, err), fault.StateConflict)
	}
	name, limit := "Another name", 7
	_, err := s.Patch(t.Context(), id, campaign.Patch{Name: &name, PurchaseLimit: campaign.Optional[int]{Set: true, Value: &limit}})
	expectRefused(t, "another limit", err, fault.StateConflict)
	if _, err := s.Patch(t.Context(), id, campaign.Patch{Name: &name}); err != nil || campaignOf(t, db, id).Name != name {
		t.Errorf("another name: %v", err)
	}
}

// What Publish refuses for its policies costs no positions.
func TestNoPositionsAreMadeForALargeCampaignThatCannotBindItself(t *testing.T) {
	t.Parallel()
	db, d := servers.DB(t), fixture.Draft(large)
	d.Policies.Beacon = true
	id := pending(t, db, d)
	if err := publish(t.Context(), newService(t, db), id); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("published: %v", err)
	}
	if n := servers.Value[int](t, db, `SELECT (SELECT count(*) FROM positions) + (SELECT count(*) FROM position_fills)`); n != 0 {
		t.Errorf("%d rows were made", n)
	}
}
