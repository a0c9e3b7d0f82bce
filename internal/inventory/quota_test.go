package inventory_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// turns are settings by which a user keeps a position for 20 minutes at most, and then
// leaves it to others for 10.
func turns(s *config.Holds) {
	s.MaxTTL, s.MaxExtensions, s.CoolDown = 10*time.Minute, 1, 10*time.Second
}

// passes lets time pass for everything that users hold or have held.
func passes(t *testing.T, db *pgxpool.Pool, id uuid.UUID, d time.Duration) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE holds SET created_at = created_at - $2 * interval '1 second', expires_at = expires_at - $2 * interval '1 second',
		        ends_by = ends_by - $2 * interval '1 second', ended_at = ended_at - $2 * interval '1 second' WHERE campaign_id = $1`,
		`UPDATE positions SET expires_at = expires_at - $2 * interval '1 second' WHERE campaign_id = $1 AND state = 'held'`,
		`UPDATE held_times SET ended_at = ended_at - $2 * interval '1 second' WHERE campaign_id = $1`,
	} {
		servers.Exec(t, db, sql, id, d.Seconds())
	}
}

// ways are what one user may try to keep position 3/1 for ever. Each is called again
// and again, with the hold that it has, after it has let time pass, and returns what it asks for next.
var ways = map[string]struct {
	before, after time.Duration // a hold that it has is released between the two
	next          func(id uuid.UUID, has *inventory.Hold) inventory.HoldRequest
}{
	"extend": {before: 9 * time.Minute},
	"release and hold again": {4 * time.Minute, 11 * time.Second, func(id uuid.UUID, _ *inventory.Hold) inventory.HoldRequest {
		return fixture.HoldRequest(id, "a", at(3, 1))
	}},
	"let expire and hold again": {5*time.Minute + 11*time.Second, 0, func(id uuid.UUID, _ *inventory.Hold) inventory.HoldRequest {
		return fixture.HoldRequest(id, "a", at(3, 1))
	}},
	"any that are free": {4 * time.Minute, 11 * time.Second, func(id uuid.UUID, _ *inventory.Hold) inventory.HoldRequest {
		return fixture.HoldAnyRequest(id, "a", 3, 1) // the others of the layer are sold
	}},
	"alternate with a bundle": {4 * time.Minute, 11 * time.Second, func(id uuid.UUID, has *inventory.Hold) inventory.HoldRequest {
		if has != nil && len(has.Positions) == 2 {
			return fixture.HoldRequest(id, "a", at(3, 1), at(4, 2))
		}
		return fixture.HoldRequest(id, "a", at(3, 1), at(4, 1))
	}},
}

// keepOn tries one of the ways once more.
func keepOn(t *testing.T, db *pgxpool.Pool, service *inventory.Holds, id uuid.UUID, name string, has *inventory.Hold) *inventory.Hold {
	t.Helper()
	way, request := ways[name], fixture.HoldRequest(id, "a", at(3, 1))
	passes(t, db, id, way.before)
	if has != nil && name == "extend" {
		if longer, err := extendAt(t, service, has.ID, 10*time.Minute); err == nil {
			return &longer
		}
	} else if has != nil && way.after > 0 {
		_, _ = releaseAt(t, service, has.ID)
	}
	passes(t, db, id, way.after)
	if way.next != nil {
		request = way.next(id, has)
	}
	request.TTL = 5 * time.Minute
	made, err := fixture.TryHold(t, service, request)
	if err != nil {
		if code := fault.CodeOf(err); code != fault.HoldLimitExceeded && code != fault.NoneAvailable && code != fault.PositionTaken {
			t.Error(err)
		}
		return nil
	}
	return &made
}

func TestNobodyKeepsAPositionForEver(t *testing.T) {
	t.Parallel()
	for name := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, turns)
			fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "z", at(3, 2), at(3, 3)))
			var has *inventory.Hold
			refused := 0
			for range 12 {
				if has = keepOn(t, db, service, id, name, has); has == nil {
					refused++
				}
				if held, _, err := inventory.ExpireHolds(t.Context(), db, id, 100); err != nil {
					t.Fatal(held, err)
				}
				var longest float64
				err := db.QueryRow(t.Context(), `
					SELECT coalesce(max(t.held_seconds + coalesce(extract(epoch FROM h.expires_at - h.created_at), 0)), 0)::float8 FROM held_times t
					LEFT JOIN holds h ON h.campaign_id = t.campaign_id AND h.user_id = t.user_id AND h.state = 'active' AND h.created_at > t.ended_at
					WHERE t.campaign_id = $1 AND t.user_id = 'a' AND t.layer = 3 AND t.ended_at + interval '10 min' > coalesce(h.created_at, clock_timestamp())`, id).Scan(&longest)
				if err != nil || longest > (20*time.Minute).Seconds()+1 {
					t.Errorf("kept for %.0f s, %v", longest, err)
				}
			}
			if refused == 0 {
				t.Error("it was never refused")
			}
			fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(4, 4))) // others are not affected
			fixture.Sound(t, db)
		})
	}
}

func TestWhoMustWaitIsToldUntilWhen(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, turns)
	for range 2 {
		h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
		passes(t, db, id, 10*time.Minute+11*time.Second)
		if now := fixture.HoldNow(t, db, h.ID); now.State != inventory.HoldExpired {
			t.Fatalf("it is %+v", now)
		}
	}
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "a", at(1, 1), at(3, 1)))
	expectCode(t, "after 20 minutes", err, fault.HoldLimitExceeded)
	if f := fault.From(err); len(f.Fields) != 1 || f.Fields[0].Pointer != "/positions/1" || time.Until(f.RetryAt) < 9*time.Minute || time.Until(f.RetryAt) > 10*time.Minute {
		t.Errorf("it is told %+v, until %s", f.Fields, f.RetryAt)
	}
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(1, 1)))
	if jobs := fixture.Finalize(t, db, fixture.ChosenRequest(t, id, "a", at(3, 1))); jobs[0].Problem != nil {
		t.Errorf("buying is not holding: %+v", jobs[0].Problem)
	}
	other := fixture.Campaign(t, db, fixture.Draft(4))
	fixture.Hold(t, service, fixture.HoldRequest(other, "a", at(3, 1)))
	fixture.Sound(t, db)
}

func TestAnExtensionEndsWithTheTimeThatIsLeft(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, turns)
	hold := func(ttl time.Duration) inventory.Hold {
		r := fixture.HoldRequest(id, "a", at(3, 1))
		r.TTL = ttl
		return fixture.Hold(t, service, r)
	}
	for range 2 {
		hold(8 * time.Minute)
		passes(t, db, id, 8*time.Minute+11*time.Second)
	}
	last := hold(3 * time.Minute) // 16 minutes and 22 s at most were used of 20
	h, err := extendAt(t, service, last.ID, 10*time.Minute)
	if err != nil || !h.ExpiresAt.Equal(h.EndsBy) || h.ExpiresAt.Sub(h.CreatedAt) > 4*time.Minute {
		t.Errorf("beyond what is left: %+v, %v", h, err)
	}
	fixture.Sound(t, db)
}

func TestAfterARestAUserHoldsAPositionAsLongAsTheFirstTime(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, turns)
	for range 3 {
		h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
		passes(t, db, id, 9*time.Minute)
		if _, err := extendAt(t, service, h.ID, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		passes(t, db, id, 20*time.Minute+time.Second)
	}
	fixture.Sound(t, db)
}

// One transaction has a release, then its user's new hold of the same position, then
// that of somebody else. It was released to others.
func TestWhoReleasesAPositionHasNoHeadStartForIt(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]time.Duration{"with a pause": 10 * time.Second, "without": 0} {
		settings := servers.Patient(servers.Settings(t))
		db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
		id := fixture.Campaign(t, db, fixture.Draft(4))
		service := fixture.Holds(t, db, nil, func(s *config.Holds) { turns(s); s.CoolDown = pause })
		h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1)))
		passes(t, db, id, time.Minute)
		queue, letGo := queueing(t, elsewhere, service, id)
		var mine, others error
		queue(func() { _, _ = service.Release(t.Context(), id, h.ID) })
		queue(func() { _, mine = fixture.TryHold(t, service, fixture.HoldRequest(id, "a", at(3, 1))) })
		queue(func() { _, others = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 1))) })
		letGo()
		if mine == nil || others != nil {
			t.Errorf("%s: the one who released it: %v; another: %v", name, mine, others)
		}
		fixture.Sound(t, db)
	}
}
