//go:build soak

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/shape"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// rounds is how often each does what it does.
const rounds = 15

// holdStorm is everything that changes a board, at once, on one campaign.
type holdStorm struct {
	s        *fleet.System
	campaign uuid.UUID

	mu    sync.Mutex
	codes map[string]int // by what was done, and what came of it
}

// did notes what came of something, and wants it to be an answer.
func (r *holdStorm) did(what string, a fleet.Answer, refusals ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	came := a.Refusal()
	if came == "" {
		came = "done"
	}
	r.codes[what+" "+came]++
	if a.Err != nil || a.Status >= http.StatusInternalServerError || a.State == job.Queued || came != "done" && !slices.Contains(refusals, came) {
		r.s.T.Errorf("%s: %v %s", what, a, a.Body)
	}
}

// whyNot is what may refuse a hold or a purchase here.
var whyNot = []string{"position-taken", "none-available", "hold-limit-exceeded"}

// fought are positions that everybody wants.
var fought = []shape.Position{fixture.At(3, 1), fixture.At(3, 2), fixture.At(3, 3), fixture.At(4, 1), fixture.At(4, 2), fixture.At(4, 3), fixture.At(4, 4), fixture.At(5, 1)}

// holder holds some of them, overlapping with the others' in an order of its own,
// and does one thing or the other with them.
func (r *holdStorm) holder(n int) {
	user := fmt.Sprint("holder-", n)
	dice := rand.New(rand.NewPCG(uint64(n), 1)) // the same in every run
	for i := range rounds {
		from := dice.IntN(len(fought) - 1)
		at := slices.Clone(fought[from : from+2])
		if n%2 == 1 { // in opposite order
			slices.Reverse(at)
		}
		h := r.s.Hold(fleet.HoldOrder{Campaign: r.campaign, User: user, At: at, TTL: 1, API: n + i})
		if r.did("hold", h.Answer, whyNot...); h.Status != http.StatusCreated {
			continue // another has them
		}
		switch dice.IntN(8) {
		case 0: // let go, for the sweep or another user
		case 1, 2:
			r.did("extend", r.s.Extend(r.s.App, h.ID).Answer, "hold-expired")
			fallthrough
		case 3, 4:
			r.did("release", r.s.Release(r.s.App, h.ID), "hold-expired")
		default:
			a := r.s.BuyChosen(n+i, r.campaign, user, h.ID)
			if r.did("buy held", a, "hold-expired"); a.State == job.Succeeded {
				r.cancel(a)
			}
		}
	}
}

// buyer buys what is free, or one of the positions that are held, and cancels.
func (r *holdStorm) buyer(n int) {
	dice := rand.New(rand.NewPCG(uint64(n), 2)) // the same in every run
	for i := range rounds {
		user := fmt.Sprint("buyer-", n)
		var a fleet.Answer
		if i%4 == 0 {
			a = r.s.BuyChosen(n+i, r.campaign, user, uuid.Nil, fought[dice.IntN(len(fought))])
		} else {
			a = r.s.Buy(fleet.Order{Campaign: r.campaign, User: user, Wait: true, API: n + i})
		}
		if r.did("buy", a, whyNot...); a.State == job.Succeeded {
			r.cancel(a)
		}
	}
}

func (r *holdStorm) cancel(bought fleet.Answer) {
	r.did("cancel", r.s.Cancel(r.s.App, bought.Result.PurchaseID, uuid.NewString(), "back"))
}

// onceEach does everything once, when nothing else happens.
func (r *holdStorm) onceEach() {
	at := fought[:2]
	first := r.s.MustHold(fleet.HoldOrder{Campaign: r.campaign, User: "first", At: at})
	r.did("hold", first.Answer)
	if second := r.s.Hold(fleet.HoldOrder{Campaign: r.campaign, User: "second", At: at}); second.Refusal() != "position-taken" {
		r.s.T.Error(second)
	}
	r.did("extend", r.s.Extend(r.s.App, first.ID).Answer)
	r.did("release", r.s.Release(r.s.App, first.ID))
	kept := r.s.MustHold(fleet.HoldOrder{Campaign: r.campaign, User: "first", At: at})
	held := r.s.BuyChosen(0, r.campaign, "first", kept.ID)
	r.did("buy held", held)
	r.cancel(held)
	bought := r.s.Buy(fleet.Order{Campaign: r.campaign, User: "second", Wait: true})
	r.did("buy", bought)
	r.cancel(bought)
}

func TestHoldsSalesSweepsAndCancellationsAtOnce(t *testing.T) {
	for name, locks := range map[string]string{"with locks": "true", "without": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{APIs: 2, Workers: 2, Env: []string{"TRIPRIZE_SWEEPS_EXPIRED_HOLDS_INTERVAL=50ms",
				"TRIPRIZE_HOLDS_COOL_DOWN=0s", "TRIPRIZE_LOCKS_ENABLED=" + locks}})
			r := &holdStorm{s: s, campaign: s.Campaign(8), codes: make(map[string]int)}
			r.onceEach()
			var all sync.WaitGroup
			for n := range 6 {
				all.Go(func() { r.holder(n) })
				all.Go(func() { r.buyer(n) })
			}
			all.Wait()
			t.Logf("what was done: %v", r.codes)
			// Nothing that nobody owns stays: when all is over or given back, all is free.
			servers.Eventually(t, "everything is free", func() bool {
				c := s.CampaignNow(r.campaign).Counts
				return c.Reserved == 0 && c.Sold == 0 && c.Available() == 36
			})
		})
	}
}
