package drawing_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize/internal/drawing"
	"triprize/internal/drawing/drand"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

// awayDrawer is a drawer whose relays go by a clock of their own, and know no newest round.
func awayDrawer(t *testing.T, db *pgxpool.Pool, atOnce int) (*drawing.Drawer, *relays) {
	t.Helper()
	r := newRelays(nil)
	drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: r, AtOnce: atOnce})
	drawer.SetClock(r.clock)
	return drawer, r
}

// frozenDraws returns draws of a chain's campaigns that are frozen, and the last of their rounds.
func frozenDraws(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain, n int) (refs []job.Ref, last uint64) {
	t.Helper()
	for range n {
		ref, number := frozen(t, db, chain)
		refs, last = append(refs, ref), max(last, number)
	}
	return refs, last
}

// noted expects that everybody can read a wait.
func noted(t *testing.T, db *pgxpool.Pool, id uuid.UUID, wait drawing.Snoozed) {
	t.Helper()
	shown, ok, err := fixture.DrawWait(t.Context(), db, id)
	if err != nil || !ok || shown.Reason != wait.Reason || !shown.RetryAt.Equal(wait.RetryAt.Truncate(time.Microsecond)) || wait.After <= 0 {
		t.Errorf("shown is %+v, %v; want %+v", shown, err, wait)
	}
}

func TestRelaysThatHangHoldOneSlotAndNoOtherDraw(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	chain := newChain(t)
	refs, last := frozenDraws(t, db, chain, 5)
	come(t, db, clock, chain, last)
	drawer, r := awayDrawer(t, db, 0)
	r.release = make(chan struct{})
	asking := make(chan error, 1)
	go func() { _, err := drawer.Run(t.Context(), refs[0]); asking <- err }()
	<-r.begun
	fresh := withBeacon(t, db, chain)
	expect := func(ref job.Ref, reason string) {
		t.Helper()
		wait := waits(t, drawer, ref)
		noted(t, db, ref.CampaignID, wait)
		if lock, _ := execution(t, db, ref.CampaignID); lock != nil || !strings.Contains(wait.Reason, reason) {
			t.Errorf("lock %v, %s", lock, wait.Reason)
		}
		if isFrozen(t, db, fresh.CampaignID) {
			t.Error("it was frozen before anybody could be asked for the newest round")
		}
	}
	for _, ref := range refs[1:] {
		expect(ref, "other draws ask")
	}
	expect(fresh, "")
	r.pass(time.Second) // by now they hang
	expect(refs[1], "do not answer")
	expect(fresh, "do not answer")
	drawn(t, drawer, fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))) // it needs no relay
	if rounds, latest := r.asked(); rounds != 1 || latest != 0 {
		t.Errorf("they were asked %d and %d times", rounds, latest)
	}
	r.serve(0, func(n uint64) (beacon.Round, error) { return chain.Sign(n), nil })
	close(r.release)
	if err := <-asking; err != nil {
		t.Error(err)
	}
	for _, ref := range refs[1:] {
		drawn(t, drawer, ref)
	}
	fixture.Sound(t, db)
}

func TestRelaysThatAreAwayAreAskedByOneDrawInAPeriodThatGrows(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	chain, other := newChain(t), newChain(t)
	refs, _ := frozenDraws(t, db, chain, 3)
	clock.MoveOn(2 * time.Minute)
	late, last := frozenDraws(t, db, chain, 2) // of another round
	elsewhere, lastElsewhere := frozen(t, db, other)
	come(t, db, clock, chain, last)
	come(t, db, clock, other, lastElsewhere)
	drawer, r := awayDrawer(t, db, 3)
	want := 0
	ask := func(ref job.Ref, questions int) drawing.Snoozed {
		t.Helper()
		wait := waits(t, drawer, ref)
		noted(t, db, ref.CampaignID, wait)
		want += questions
		if rounds, _ := r.asked(); rounds != want {
			t.Fatalf("they were asked %d times, want %d", rounds, want)
		}
		return wait
	}
	for _, fault := range []struct {
		takes time.Duration
		err   error
	}{{time.Second - 1, errAway}, {time.Hour, fmt.Errorf("a relay: %w", drand.ErrNotYet)}} { // fast, or no fault of theirs
		r.serve(fault.takes, func(uint64) (beacon.Round, error) { return beacon.Round{}, fault.err })
		for _, ref := range refs {
			ask(ref, 1)
		}
	}
	r.serve(2*time.Second, away)
	for _, period := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		ask(refs[0], 1)
		for _, ref := range refs {
			if wait := ask(ref, 0); wait.After != period*time.Second {
				t.Errorf("tried again in %s, want %d s", wait.After, period)
			}
		}
		r.pass(period*time.Second - 1)
		ask(refs[1], 0)
		r.pass(1)
	}
	ask(refs[0], 1)
	ask(elsewhere, 1) // the relays of another chain are others
	fresh := withBeacon(t, db, chain)
	noted(t, db, fresh.CampaignID, waits(t, drawer, fresh))
	if _, latest := r.asked(); latest != 0 || isFrozen(t, db, fresh.CampaignID) {
		t.Errorf("asked %d times for the newest round, or frozen without it", latest)
	}
	r.pass(time.Minute)
	r.serve(0, func(n uint64) (beacon.Round, error) { return chain.Sign(n), nil })
	drawn(t, drawer, refs[0])
	want++
	r.serve(2*time.Second, away)
	ask(late[0], 1)
	if wait := ask(late[1], 0); wait.After != time.Second {
		t.Errorf("after an answer the first period is %s", wait.After)
	}
}

// While a probe is under way nobody else asks, even if more may be asked at once.
func TestOneDrawProbesRelaysThatWereAway(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	chain := newChain(t)
	refs, last := frozenDraws(t, db, chain, 3)
	come(t, db, clock, chain, last)
	drawer, r := awayDrawer(t, db, 3)
	r.serve(time.Second, away)
	waits(t, drawer, refs[0])
	<-r.begun
	r.pass(time.Second)
	r.release = make(chan struct{})
	probing := make(chan error, 1)
	go func() { _, err := drawer.Run(t.Context(), refs[0]); probing <- err }()
	<-r.begun
	for _, ref := range refs[1:] {
		waits(t, drawer, ref)
	}
	if rounds, _ := r.asked(); rounds != 2 {
		t.Errorf("they were asked %d times", rounds)
	}
	close(r.release)
	wait(t, <-probing)
}

// A worker that shuts down waits for no answer, and the draw is put off for another one.
func TestAWorkerThatShutsDownEndsItsQuestions(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	chain := newChain(t)
	due, number := frozen(t, db, chain)
	come(t, db, clock, chain, number)
	for name, ref := range map[string]job.Ref{"due": due, "not frozen": withBeacon(t, db, chain)} {
		drawer, r := awayDrawer(t, db, 0)
		r.release = make(chan struct{}) // for ever
		ended := make(chan error, 1)
		go func() { _, err := drawer.Run(t.Context(), ref); ended <- err }()
		<-r.begun
		drawer.EndQuestions()
		noted(t, db, ref.CampaignID, wait(t, <-ended))
		if lock, _ := execution(t, db, ref.CampaignID); lock != nil || drawer.KnownAway() != 0 {
			t.Errorf("%s: it waits with the lock, or blames the relays", name)
		}
		waits(t, drawer, ref)
		if rounds, latest := r.asked(); rounds+latest != 1 {
			t.Errorf("%s: they were asked %d times", name, rounds+latest)
		}
		if name == "not frozen" && isFrozen(t, db, ref.CampaignID) {
			t.Error("it was frozen without an answer")
		}
	}
}

// After its question an attempt has time left to store the answer, or to say that there was none.
func TestNoQuestionTakesTheWholeAttempt(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	r, ref := newRelays(db), withBeacon(t, db, newChain(t))
	limit := 8 * time.Second // short, so that no other bound is shorter than its part
	drawer := drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: limit}, drawing.DrawerOptions{Beacon: r}, servers.Logger(t))
	servers.Eventually(t, "all is asked", func() bool {
		if _, err := drawer.Run(t.Context(), ref); err == nil {
			t.Error("it was drawn")
		}
		clock.MoveOn(time.Minute)
		rounds, latest := r.asked()
		return rounds > 0 && latest > 0
	})
	for _, takes := range r.limits {
		if takes > limit/4 {
			t.Errorf("a question may take %s of the %s that an attempt has", takes, limit)
		}
	}
}
