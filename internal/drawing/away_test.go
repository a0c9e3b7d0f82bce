package drawing_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
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
)

// slowRelays answer when a test lets them, and as it says. They count what they are asked.
type slowRelays struct {
	begun   chan struct{} // has one for each question that has begun
	release chan struct{} // nil: nothing is waited for

	mu             sync.Mutex
	takes          time.Duration // by the clock below
	now            time.Time
	serve          func(number uint64) (beacon.Round, error)
	rounds, latest int
}

func newSlowRelays() *slowRelays {
	away := func(uint64) (beacon.Round, error) { return beacon.Round{}, errAway }
	return &slowRelays{begun: make(chan struct{}, 1000), now: time.Now(), serve: away}
}

func (r *slowRelays) answer(ctx context.Context, asked *int, number uint64) (beacon.Round, error) {
	r.mu.Lock()
	*asked++
	r.mu.Unlock()
	r.begun <- struct{}{}
	if r.release != nil {
		select {
		case <-ctx.Done():
			return beacon.Round{}, ctx.Err()
		case <-r.release:
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(r.takes)
	return r.serve(number)
}

func (r *slowRelays) Round(ctx context.Context, _ beacon.Chain, number uint64) (beacon.Round, error) {
	return r.answer(ctx, &r.rounds, number)
}

func (r *slowRelays) Latest(ctx context.Context, _ beacon.Chain) (beacon.Round, error) {
	return r.answer(ctx, &r.latest, 1)
}

func (r *slowRelays) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *slowRelays) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *slowRelays) asked() (rounds, latest int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rounds, r.latest
}

func (r *slowRelays) set(takes time.Duration, serve func(number uint64) (beacon.Round, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes, r.serve = takes, serve
}

// dueDraws returns draws of a chain's campaigns that are frozen and whose rounds are due.
func dueDraws(t *testing.T, db *pgxpool.Pool, clock *servers.Clock, s signer, n int) []job.Ref {
	t.Helper()
	refs, last := frozenDraws(t, db, s, n)
	come(t, db, clock, s, last)
	return refs
}

// frozenDraws returns draws of a chain's campaigns that are frozen, and the last of their rounds.
func frozenDraws(t *testing.T, db *pgxpool.Pool, s signer, n int) (refs []job.Ref, last uint64) {
	t.Helper()
	for range n {
		ref := fixture.SellOut(t, db, withBeacon(t, db, s))
		_, err := drawerWith(t, db, drawing.DrawerOptions{}).Run(t.Context(), ref)
		_ = waits(t, err)
		refs, last = append(refs, ref), max(last, *frozen(t, db, ref.CampaignID).Round)
	}
	return refs, last
}

// noted expects that everybody can read a wait.
func noted(t *testing.T, db *pgxpool.Pool, id uuid.UUID, wait *drawing.Waiting) {
	t.Helper()
	shown, ok, err := fixture.DrawWait(t.Context(), db, id)
	if err != nil || !ok || shown.Reason != wait.Reason || !shown.RetryAt.Equal(wait.RetryAt.Truncate(time.Microsecond)) || wait.After <= 0 {
		t.Errorf("shown is %+v, %v; want %+v", shown, err, wait)
	}
}

func TestRelaysThatHangHoldOneSlotAndNoOtherDraw(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s, r := newSigner(t), newSlowRelays()
	refs := dueDraws(t, db, clock, s, 5)
	r.release = make(chan struct{})
	drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: r})
	drawer.SetClock(r.clock)
	asking := make(chan error, 1)
	go func() { _, err := drawer.Run(t.Context(), refs[0]); asking <- err }()
	<-r.begun
	for _, ref := range refs[1:] {
		_, before := execution(t, db, ref.CampaignID)
		_, err := drawer.Run(t.Context(), ref)
		wait := waits(t, err)
		noted(t, db, ref.CampaignID, wait)
		if lock, version := execution(t, db, ref.CampaignID); lock != nil || version != before || !strings.Contains(wait.Reason, "other draws ask") {
			t.Errorf("lock %v, version %d after %d, %s", lock, version, before, wait.Reason)
		}
	}
	fresh := fixture.SellOut(t, db, withBeacon(t, db, s))
	_, err := drawer.Run(t.Context(), fresh)
	noted(t, db, fresh.CampaignID, waits(t, err))
	if isFrozen(t, db, fresh.CampaignID) {
		t.Error("it was frozen before anybody could be asked for the newest round")
	}
	r.pass(time.Second) // by now they hang
	_, err = drawer.Run(t.Context(), refs[1])
	if wait := waits(t, err); !strings.Contains(wait.Reason, "do not answer") {
		t.Error(wait.Reason)
	}
	_, err = drawer.Run(t.Context(), fresh)
	if wait := waits(t, err); isFrozen(t, db, fresh.CampaignID) || !strings.Contains(wait.Reason, "do not answer") {
		t.Errorf("it was frozen although nobody tells the newest round, or says %s", wait.Reason)
	}
	plain := fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))
	if _, err := drawer.Run(t.Context(), plain); err != nil {
		t.Errorf("a draw that needs no relay: %v", err)
	}
	if rounds, latest := r.asked(); rounds != 1 || latest != 0 {
		t.Errorf("they were asked %d and %d times", rounds, latest)
	}
	r.set(0, func(n uint64) (beacon.Round, error) { return s.sign(n), nil })
	close(r.release)
	if err := <-asking; err != nil {
		t.Error(err)
	}
	for _, ref := range refs[1:] {
		if _, err := drawer.Run(t.Context(), ref); err != nil {
			t.Error(err)
		}
	}
	fixture.Sound(t, db)
}

func TestRelaysThatAreAwayAreAskedByOneDrawInAPeriodThatGrows(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s, other, r := newSigner(t), newSigner(t), newSlowRelays()
	refs, _ := frozenDraws(t, db, s, 3)
	clock.MoveOn(2 * time.Minute)
	late, last := frozenDraws(t, db, s, 2) // of another round
	elsewhere, lastElsewhere := frozenDraws(t, db, other, 1)
	come(t, db, clock, s, last)
	come(t, db, clock, other, lastElsewhere)
	drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: r, AtOnce: 3})
	drawer.SetClock(r.clock)
	away := func(uint64) (beacon.Round, error) { return beacon.Round{}, errAway }
	want := 0
	ask := func(ref job.Ref, questions int) *drawing.Waiting {
		t.Helper()
		_, err := drawer.Run(t.Context(), ref)
		wait := waits(t, err)
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
		r.set(fault.takes, func(uint64) (beacon.Round, error) { return beacon.Round{}, fault.err })
		for _, ref := range refs {
			_ = ask(ref, 1)
		}
	}
	r.set(2*time.Second, away)
	for _, period := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		_ = ask(refs[0], 1)
		for _, ref := range refs {
			if wait := ask(ref, 0); wait.After != period*time.Second {
				t.Errorf("tried again in %s, want %d s", wait.After, period)
			}
		}
		r.pass(period*time.Second - 1)
		_ = ask(refs[1], 0)
		r.pass(1)
	}
	_ = ask(refs[0], 1)
	_ = ask(elsewhere[0], 1) // the relays of another chain are others
	fresh := fixture.SellOut(t, db, withBeacon(t, db, s))
	_, err := drawer.Run(t.Context(), fresh)
	noted(t, db, fresh.CampaignID, waits(t, err))
	if _, latest := r.asked(); latest != 0 || isFrozen(t, db, fresh.CampaignID) {
		t.Errorf("asked %d times for the newest round, or frozen without it", latest)
	}
	r.pass(time.Minute)
	r.set(0, func(n uint64) (beacon.Round, error) { return s.sign(n), nil })
	if _, err := drawer.Run(t.Context(), refs[0]); err != nil {
		t.Error(err)
	}
	want++
	r.set(2*time.Second, away)
	_ = ask(late[0], 1)
	if wait := ask(late[1], 0); wait.After != time.Second {
		t.Errorf("after an answer the first period is %s", wait.After)
	}
}

// While a probe is under way nobody else asks, even if more may be asked at once.
func TestOneDrawProbesRelaysThatWereAway(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s, r := newSigner(t), newSlowRelays()
	refs := dueDraws(t, db, clock, s, 3)
	drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: r, AtOnce: 3})
	drawer.SetClock(r.clock)
	r.set(time.Second, r.serve)
	_, err := drawer.Run(t.Context(), refs[0])
	_ = waits(t, err)
	<-r.begun
	r.pass(time.Second)
	r.release = make(chan struct{})
	probing := make(chan error, 1)
	go func() { _, err := drawer.Run(t.Context(), refs[0]); probing <- err }()
	<-r.begun
	for _, ref := range refs[1:] {
		_, err := drawer.Run(t.Context(), ref)
		_ = waits(t, err)
	}
	if rounds, _ := r.asked(); rounds != 2 {
		t.Errorf("they were asked %d times", rounds)
	}
	close(r.release)
	_ = waits(t, <-probing)
}

func TestOnlyFewChainsAreKnownToBeAway(t *testing.T) {
	t.Parallel()
	db, r := servers.DB(t), newSlowRelays()
	r.set(2*time.Second, r.serve)
	drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: r})
	drawer.SetClock(r.clock)
	for range drawing.MostAway + 3 {
		_, err := drawer.Run(t.Context(), fixture.SellOut(t, db, withBeacon(t, db, newSigner(t))))
		_ = waits(t, err)
	}
	if n := drawer.KnownAway(); n != drawing.MostAway {
		t.Errorf("%d chains", n)
	}
}

// A worker that shuts down waits for no answer, and the draw is put off for another one.
func TestAWorkerThatShutsDownEndsItsQuestions(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s := newSigner(t)
	due := dueDraws(t, db, clock, s, 1)[0]
	for name, ref := range map[string]job.Ref{"due": due, "not frozen": fixture.SellOut(t, db, withBeacon(t, db, s))} {
		r := newSlowRelays()
		r.release = make(chan struct{}) // for ever
		drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: r})
		drawer.SetClock(r.clock)
		ended := make(chan error, 1)
		go func() { _, err := drawer.Run(t.Context(), ref); ended <- err }()
		<-r.begun
		drawer.EndQuestions()
		noted(t, db, ref.CampaignID, waits(t, <-ended))
		if lock, _ := execution(t, db, ref.CampaignID); lock != nil || drawer.KnownAway() != 0 {
			t.Errorf("%s: it waits with the lock, or blames the relays", name)
		}
		_, err := drawer.Run(t.Context(), ref)
		_ = waits(t, err)
		if rounds, latest := r.asked(); rounds+latest != 1 {
			t.Errorf("%s: they were asked %d times", name, rounds+latest)
		}
		if name == "not frozen" && isFrozen(t, db, ref.CampaignID) {
			t.Error("it was frozen without an answer")
		}
	}
}

// deadlines note how long each question may take.
type deadlines struct {
	db    *pgxpool.Pool
	takes map[string]time.Duration
}

func (d deadlines) note(ctx context.Context, question string) {
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(time.Hour)
	}
	d.takes[question] = time.Until(until)
}

func (d deadlines) Round(ctx context.Context, _ beacon.Chain, _ uint64) (beacon.Round, error) {
	d.note(ctx, "round")
	return beacon.Round{}, errAway
}

func (d deadlines) Latest(ctx context.Context, chain beacon.Chain) (beacon.Round, error) {
	d.note(ctx, "latest")
	return newest(ctx, d.db, chain)
}

// After its question an attempt has time left to store the answer, or to say that there was none.
func TestNoQuestionTakesTheWholeAttempt(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	s, d := newSigner(t), deadlines{db, make(map[string]time.Duration)}
	ref := fixture.SellOut(t, db, withBeacon(t, db, s))
	limit := 8 * time.Second // short, so that no other bound is shorter than its part
	drawer := drawing.NewDrawer(db, fixture.Key(t), config.Draw{Lease: time.Hour, Timeout: limit}, drawing.DrawerOptions{Beacon: d}, servers.Logger(t))
	servers.Eventually(t, "all is asked", func() bool {
		if _, err := drawer.Run(t.Context(), ref); err == nil {
			t.Error("it was drawn")
		}
		clock.MoveOn(time.Minute)
		return len(d.takes) == 2
	})
	for question, takes := range d.takes {
		if takes > limit/4 {
			t.Errorf("%s: a question may take %s of the %s that an attempt has", question, takes, limit)
		}
	}
}
