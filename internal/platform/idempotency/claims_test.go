package idempotency_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/config"
	"triprize/internal/platform/idempotency"
	"triprize/internal/testkit/servers"
)

// claim returns the jobs that are busy for a holder.
func (s store) claim(t *testing.T, holder string, jobs ...uuid.UUID) []uuid.UUID {
	t.Helper()
	busy, err := s.claims.Claim(t.Context(), holder, jobs)
	if err != nil {
		t.Fatal(err)
	}
	return busy
}

func TestAJobIsBusyForOthersAndNotForItsHolder(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(c *config.Idempotency) { c.ClaimTTL = 10 * time.Minute })
	a, b, c := uuid.New(), uuid.New(), uuid.New()
	if busy := s.claim(t, "worker-1", a, b); len(busy) != 0 {
		t.Fatalf("free jobs are busy: %v", busy)
	}
	if busy := s.claim(t, "worker-1", a, b); len(busy) != 0 {
		t.Errorf("its own jobs are busy for the holder: %v", busy)
	}
	for _, other := range []string{"worker-2", "worker-11", "worker-", "w"} { // one name may begin like another
		if busy := s.claim(t, other, b, c, a); !slices.Contains(busy, a) || !slices.Contains(busy, b) {
			t.Errorf("busy for %s: %v", other, busy)
		}
	}
	if busy := s.claim(t, "worker-2", a, c, b); !slices.Equal(busy, []uuid.UUID{a, b}) {
		t.Errorf("worker-2, who has the job in the middle, is told that %v are busy", busy)
	}
	if busy := s.claim(t, "worker-1", a, c, b); !slices.Equal(busy, []uuid.UUID{c}) {
		t.Errorf("worker-1 is told that %v are busy", busy)
	}
	if busy := s.claim(t, "worker-1"); len(busy) != 0 {
		t.Errorf("of no jobs %v are busy", busy)
	}
}

func TestAClaimThatIsGivenBackIsFree(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(c *config.Idempotency) { c.ClaimTTL = 10 * time.Minute })
	a, b, kept := uuid.New(), uuid.New(), uuid.New()
	s.claim(t, "worker-1", a, b, kept)
	for _, jobs := range [][]uuid.UUID{{a, b}, nil} {
		if err := s.claims.Release(t.Context(), s.rdb, jobs); err != nil {
			t.Fatal(err)
		}
	}
	if busy := s.claim(t, "worker-2", a, b, kept); !slices.Equal(busy, []uuid.UUID{kept}) {
		t.Errorf("busy: %v", busy)
	}
}

func TestAClaimOfADeadWorkerRunsOut(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(c *config.Idempotency) { c.ClaimTTL = 300 * time.Millisecond })
	job, longer := uuid.New(), s.settings
	longer.ClaimTTL = 10 * time.Minute
	heir := store{claims: idempotency.NewClaims(s.rdb, s.namespace, longer)}
	s.claim(t, "the dead", job)
	servers.Eventually(t, "the heir has it", func() bool { return len(heir.claim(t, "the heir", job)) == 0 })
	if busy := s.claim(t, "the dead", job); len(busy) != 1 {
		t.Error("who comes back from the dead has it again")
	}
}

// A claim that is met again is not prolonged by that: only Refresh does.
func TestARefreshedClaimStays(t *testing.T) {
	t.Parallel()
	s := newStore(t, func(c *config.Idempotency) { c.ClaimTTL = 10 * time.Minute })
	kept, left, never := uuid.New(), uuid.New(), uuid.New()
	s.claim(t, "worker-1", kept, left)
	longest := s.settings
	longest.ClaimTTL = time.Hour
	if err := idempotency.NewClaims(s.rdb, s.namespace, longest).Refresh(t.Context(), []uuid.UUID{kept, never}); err != nil {
		t.Fatal(err)
	}
	for job, want := range map[uuid.UUID][2]time.Duration{kept: {10 * time.Minute, time.Hour}, left: {0, 10 * time.Minute}} {
		if rest, err := s.rdb.PTTL(t.Context(), s.namespace+":job:"+job.String()).Result(); err != nil || rest <= want[0] || rest > want[1] {
			t.Errorf("it lasts for %s, %v; want %v", rest, err, want)
		}
	}
	if busy := s.claim(t, "worker-2", kept, left, never); !slices.Equal(busy, []uuid.UUID{kept, left}) {
		t.Errorf("busy: %v", busy)
	}
	if err := s.claims.Refresh(t.Context(), nil); err != nil {
		t.Errorf("refreshing nothing: %v", err)
	}
}
