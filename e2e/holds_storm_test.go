package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// stormFor is how long everything happens at once.
const stormFor = 4 * time.Second

// holdStorm is everything that changes a board, at once, on one campaign.
type holdStorm struct {
	s        *system
	campaign uuid.UUID
	until    time.Time

	mu    sync.Mutex
	codes map[string]int // by what was done, and what came of it
}

// did notes what came of something, and wants it to be an answer.
func (r *holdStorm) did(what string, a answer, refusals ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	came := a.code()
	if came == "" {
		came = "done"
	}
	r.codes[what+" "+came]++
	if a.err != nil || a.status >= http.StatusInternalServerError || a.State == job.Queued || came != "done" && !slices.Contains(refusals, came) {
		r.s.t.Errorf("%s: %v %s", what, a, a.body)
	}
}

// whyNot is what may refuse a hold or a purchase here.
var whyNot = []string{"position-taken", "none-available", "hold-limit-exceeded"}

// fought are positions that everybody wants.
var fought = []place{{3, 1}, {3, 2}, {3, 3}, {4, 1}, {4, 2}, {4, 3}, {4, 4}, {5, 1}}

// holder holds some of them, overlapping with the others' in an order of its own,
// and does one thing or the other with them.
func (r *holdStorm) holder(n int) {
	user := fmt.Sprint("holder-", n)
	for i := 0; time.Now().Before(r.until); i++ {
		from := rand.N(len(fought) - 1)
		at := slices.Clone(fought[from : from+2])
		if n%2 == 1 { // in opposite order
			slices.Reverse(at)
		}
		h := r.s.hold(ask{campaign: r.campaign, user: user, at: at, ttl: 1, api: n + i})
		if r.did("hold", h.answer, whyNot...); h.status != http.StatusCreated {
			time.Sleep(20 * time.Millisecond) // another has them
			continue
		}
		switch rand.N(8) {
		case 0: // let go, for the sweep or whoever wants them
			time.Sleep(100 * time.Millisecond)
		case 1, 2:
			r.did("extend", r.s.extend(r.s.app, h.ID).answer, "hold-expired")
			fallthrough
		case 3, 4:
			r.did("release", r.s.release(r.s.app, h.ID), "hold-expired")
		default:
			a := r.s.buyChosen(n+i, r.campaign, user, h.ID)
			if r.did("buy held", a, "hold-expired"); a.State == job.Succeeded {
				r.cancel(a)
			}
		}
	}
}

// buyer buys what is free, or one of the positions that are held, and cancels.
func (r *holdStorm) buyer(n int) {
	for i := 0; time.Now().Before(r.until); i++ {
		user := fmt.Sprint("buyer-", n)
		var a answer
		if i%4 == 0 {
			a = r.s.buyChosen(n+i, r.campaign, user, uuid.Nil, fought[rand.N(len(fought))])
		} else {
			a = r.s.buy(order{campaign: r.campaign, user: user, wait: 20, api: n + i})
		}
		if r.did("buy", a, whyNot...); a.State == job.Succeeded {
			r.cancel(a)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *holdStorm) cancel(bought answer) {
	r.did("cancel", r.s.cancel(r.s.app, bought.Result.PurchaseID, uuid.NewString(), "back"))
}

// deadlocks counts those of the system's database, ever.
func (s *system) deadlocks() (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func TestHoldsSalesSweepsAndCancellationsAtOnce(t *testing.T) {
	for name, locks := range map[string]string{"with locks": "true", "without": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{apis: 2, workers: 2, env: []string{"TRIPRIZE_SWEEPS_EXPIRED_HOLDS_INTERVAL=50ms",
				"TRIPRIZE_HOLDS_COOL_DOWN=0s", "TRIPRIZE_LOCKS_ENABLED=" + locks}})
			r := &holdStorm{s: s, campaign: s.campaign(8), until: time.Now().Add(stormFor), codes: make(map[string]int)}
			var all sync.WaitGroup
			for n := range 6 {
				all.Go(func() { r.holder(n) })
				all.Go(func() { r.buyer(n) })
			}
			all.Wait()
			t.Logf("what was done: %v", r.codes)
			for _, what := range []string{"hold done", "hold position-taken", "release done", "buy held done", "buy done", "cancel done"} {
				if r.codes[what] == 0 {
					t.Errorf("no %s: the test does not test", what)
				}
			}
			if n := s.deadlocks(); n != 0 {
				t.Errorf("%d deadlocks", n)
			}
			// Nothing that nobody owns stays: when all is over or given back, all is free.
			eventually(t, recoveryBound, "everything is free", func() bool {
				c := s.campaignNow(r.campaign).Counts
				return c.Reserved == 0 && c.Sold == 0 && c.Available() == 36
			})
		})
	}
}
