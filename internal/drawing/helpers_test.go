package drawing_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/drandsim"
)

func TestMain(m *testing.M) { servers.Main(m) }

// settings are those of workers whose attempts end when the test lets them.
var settings = config.Draw{Lease: time.Hour, Timeout: servers.Patience}

// chains are those of all tests, by their public keys.
var chains sync.Map

// newChain returns a chain of rounds of a minute. A freeze takes less than ten rounds on any machine.
func newChain(t *testing.T) *drandsim.Chain {
	t.Helper()
	seed := make([]byte, 32)
	_, _ = rand.Read(seed)
	chain, err := drandsim.NewChain(seed, time.Now().Add(-time.Hour), time.Minute)
	servers.NoError(t, err)
	chains.Store(string(chain.PublicKey), chain)
	return chain
}

// forgerOf returns a chain that is another in all but the key.
func forgerOf(t *testing.T, chain *drandsim.Chain) *drandsim.Chain {
	t.Helper()
	forger, err := chain.Fork()
	servers.NoError(t, err)
	return forger
}

// come lets the time pass until a round is due.
func come(t *testing.T, db *pgxpool.Pool, clock *servers.Clock, chain *drandsim.Chain, number uint64) {
	t.Helper()
	now, err := drawing.Now(t.Context(), db)
	servers.NoError(t, err)
	clock.MoveOn(max(0, chain.DueAt(number).Sub(now)))
}

// know stores a round as if it had come before its time.
func know(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain, number uint64) {
	t.Helper()
	servers.NoError(t, drawing.InsertRound(t.Context(), db, chain.Hash(), chain.Sign(number)))
}

var errAway = errors.New("the relays are away")

func away(uint64) (beacon.Round, error) { return beacon.Round{}, errAway }

// relays answer as a test says, and when it lets them; they note what they are asked. Unless it says
// something they tell the newest round by the clock of a database, and are away for all else.
type relays struct {
	db      *pgxpool.Pool // nil: they are away for the newest round, too
	begun   chan struct{} // has one for each question that has begun
	release chan struct{} // nil: nothing is waited for

	mu     sync.Mutex
	round  func(number uint64) (beacon.Round, error)
	latest func() (beacon.Round, error)
	takes  time.Duration // by the clock below
	now    time.Time
	limits []time.Duration // how long each question may take
	rounds int             // how many of them were about a round that is known by its number
}

func newRelays(db *pgxpool.Pool) *relays {
	return &relays{db: db, begun: make(chan struct{}, 1000), now: time.Now()}
}

func (r *relays) answer(ctx context.Context, rounds int, say func() (beacon.Round, error)) (beacon.Round, error) {
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(time.Hour)
	}
	r.mu.Lock()
	r.rounds += rounds
	r.limits = append(r.limits, time.Until(until))
	r.mu.Unlock()
	select {
	case r.begun <- struct{}{}:
	default: // more than any test waits for
	}
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
	return say()
}

func (r *relays) Round(ctx context.Context, _ beacon.Chain, number uint64) (beacon.Round, error) {
	return r.answer(ctx, 1, func() (beacon.Round, error) {
		if r.round == nil {
			return away(number)
		}
		return r.round(number)
	})
}

func (r *relays) Latest(ctx context.Context, chain beacon.Chain) (beacon.Round, error) {
	return r.answer(ctx, 0, func() (beacon.Round, error) {
		if r.latest != nil {
			return r.latest()
		}
		known, ok := chains.Load(string(chain.PublicKey))
		if r.db == nil || !ok {
			return beacon.Round{}, errAway
		}
		now, err := drawing.Now(ctx, r.db)
		return known.(*drandsim.Chain).Sign(chain.RoundAt(now)), err
	})
}

// serve changes how long an answer takes, and what it is.
func (r *relays) serve(takes time.Duration, round func(number uint64) (beacon.Round, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes, r.round = takes, round
}

func (r *relays) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *relays) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *relays) asked() (rounds, latest int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rounds, len(r.limits) - r.rounds
}

// newDrawer returns a drawer whose relays tell the newest round.
func newDrawer(t *testing.T, db *pgxpool.Pool) *drawing.Drawer {
	return drawerWith(t, db, drawing.DrawerOptions{Beacon: newRelays(db)})
}

func drawerWith(t *testing.T, db *pgxpool.Pool, options drawing.DrawerOptions) *drawing.Drawer {
	return drawing.NewDrawer(db, fixture.Key(t), settings, options, servers.Logger(t))
}

// drawn runs a draw that comes to its end.
func drawn(t *testing.T, drawer *drawing.Drawer, ref job.Ref) {
	t.Helper()
	if outcome, err := drawer.Run(t.Context(), ref); err != nil || outcome.Problem != nil {
		t.Fatal(outcome.Problem, err)
	}
}

// waits runs a draw that must wait.
func waits(t *testing.T, drawer *drawing.Drawer, ref job.Ref) drawing.Snoozed {
	t.Helper()
	_, err := drawer.Run(t.Context(), ref)
	return wait(t, err)
}

func wait(t *testing.T, err error) drawing.Snoozed {
	t.Helper()
	wait, ok := errors.AsType[*drawing.Snoozed](err)
	if !ok {
		t.Fatalf("it does not wait: %v", err)
	}
	return *wait
}

// withBeacon sells a campaign out that is drawn with a round of a chain.
func withBeacon(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain) job.Ref {
	t.Helper()
	draft := fixture.Draft(3)
	draft.Policies.Beacon = true
	return fixture.SellOut(t, db, fixture.CampaignOn(t, db, draft, &chain.Chain))
}

// frozen is withBeacon for a campaign that is frozen, and waits for its round.
func frozen(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain) (ref job.Ref, number uint64) {
	t.Helper()
	ref = withBeacon(t, db, chain)
	waits(t, newDrawer(t, db), ref)
	return ref, *freezeOf(t, db, ref.CampaignID).Round
}

// freezeOf returns the freeze of a campaign; one without a time: it is not frozen.
func freezeOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) drawing.Freeze {
	t.Helper()
	f, _, err := drawing.FreezeOf(t.Context(), db, id)
	servers.NoError(t, err)
	return f
}

func isFrozen(t *testing.T, db *pgxpool.Pool, id uuid.UUID) bool {
	t.Helper()
	return !freezeOf(t, db, id).FrozenAt.IsZero()
}

// execution returns the lock columns of a campaign.
func execution(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (lock *uuid.UUID, version int64) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT execution_lock_id, execution_version FROM campaigns WHERE id = $1`, id).Scan(&lock, &version)
	servers.NoError(t, err)
	return lock, version
}

func state(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.State {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	servers.NoError(t, err)
	return c.State
}

// ask accepts a draw job as an operator would.
func ask(t *testing.T, db *pgxpool.Pool, id uuid.UUID) job.Ref {
	t.Helper()
	jobID := uuidv7.New()
	return fixture.Accept(t, db, job.Request{ID: jobID, Client: "ops", Key: jobID.String(), Kind: job.KindDraw, CampaignID: id, Retention: time.Hour})[0]
}

func in(t *testing.T, db *pgxpool.Pool, do func(tx pgx.Tx) error) {
	t.Helper()
	servers.NoError(t, postgres.InTx(t.Context(), db, do))
}
