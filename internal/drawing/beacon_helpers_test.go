package drawing_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/cloudflare/circl/sign/bls"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/drawing"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// signer is a chain of rounds of a minute, and the key that signs them. A freeze takes less than
// ten rounds on any machine.
type signer struct {
	beacon.Chain
	key *bls.PrivateKey[bls.KeyG2SigG1]
}

// signers are those of all tests, by the public keys of their chains.
var signers sync.Map

func newSigner(t *testing.T) signer {
	t.Helper()
	seed := make([]byte, 32)
	_, _ = rand.Read(seed)
	key, err := bls.KeyGen[bls.KeyG2SigG1](seed, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	s := signer{Chain: beacon.Chain{PublicKey: public, GenesisTime: time.Now().Add(-time.Hour).Unix(), GenesisSeed: seed, ID: "test", PeriodS: 60}, key: key}
	signers.Store(string(public), s)
	return s
}

// newest returns the newest round of a chain by the clock of the database.
func newest(ctx context.Context, db *pgxpool.Pool, chain beacon.Chain) (beacon.Round, error) {
	known, _ := signers.Load(string(chain.PublicKey))
	now, err := drawing.Now(ctx, db)
	return known.(signer).sign(chain.RoundAt(now)), err
}

// sign returns a round, due or not.
func (s signer) sign(number uint64) beacon.Round {
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, number))
	signature := bls.Sign(s.key, message[:])
	return beacon.Round{Number: number, Signature: signature, Randomness: sha256.Sum256(signature)}
}

// come lets the time pass until a round is due.
func come(t *testing.T, db *pgxpool.Pool, clock *servers.Clock, s signer, number uint64) {
	t.Helper()
	now, err := drawing.Now(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	clock.MoveOn(max(0, s.DueAt(number).Sub(now)))
}

var errAway = errors.New("the relays are away")

// relays answer with what a test says. Without, they tell the newest round by the clock of a
// database, and are away for all else.
type relays struct {
	db     *pgxpool.Pool // nil: they are away for the newest round, too
	mu     sync.Mutex
	round  func(number uint64) (beacon.Round, error)
	latest func() (beacon.Round, error)
	asked  int // for rounds
}

func (r *relays) Round(_ context.Context, _ beacon.Chain, number uint64) (beacon.Round, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.round == nil {
		return beacon.Round{}, errAway
	}
	return r.round(number)
}

func (r *relays) Latest(ctx context.Context, chain beacon.Chain) (beacon.Round, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.latest != nil:
		return r.latest()
	case r.db != nil:
		return newest(ctx, r.db, chain)
	}
	return beacon.Round{}, errAway
}

func (r *relays) serve(round func(number uint64) (beacon.Round, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round = round
}

// bound publishes a campaign of three layers whose rules have what bind adds.
func bound(t *testing.T, db *pgxpool.Pool, bind func(*fairdraw.Rules)) uuid.UUID {
	t.Helper()
	id, draft := uuidv7.New(), fixture.Draft(3)
	in(t, db, func(tx pgx.Tx) error {
		if err := campaign.Create(t.Context(), tx, id, draft); err != nil {
			return err
		}
		prizes, err := campaign.Prizes(t.Context(), tx, id)
		if err != nil {
			return err
		}
		listed := make([]fairdraw.Prize, len(prizes))
		for i, p := range prizes {
			listed[i] = fairdraw.Prize{Number: p.Number, Layer: p.Layer, Name: p.Name}
		}
		rules := fairdraw.NewRules(id, fairdraw.Triangle(3), listed, nil)
		bind(&rules)
		text, err := rules.Canonical()
		if err != nil {
			return err
		}
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		commitment := fairdraw.Commitment(id, text, secret)
		if err := inventory.Fill(t.Context(), tx, id, inventory.Plan{Shape: fixture.Triangle(3), Prices: []money.Amount{100, 200, 300}}); err != nil {
			return err
		}
		if err := campaign.Activate(t.Context(), tx, id, campaign.Commitment{Rules: text, Commitment: commitment[:]}); err != nil {
			return err
		}
		return drawing.InsertSecret(t.Context(), tx, id, fixture.Key(t).Seal(secret, id[:]))
	})
	return id
}

// withBeacon publishes a campaign that is drawn with rounds of a chain.
func withBeacon(t *testing.T, db *pgxpool.Pool, s signer) uuid.UUID {
	t.Helper()
	in(t, db, func(tx pgx.Tx) error { return drawing.InsertChain(t.Context(), tx, s.Chain) })
	return bound(t, db, func(r *fairdraw.Rules) { r.Beacon = &fairdraw.Beacon{ChainHash: s.Hash(), PeriodS: s.PeriodS} })
}

// know stores a round as if it had come before its time.
func (s signer) know(t *testing.T, db *pgxpool.Pool, number uint64) {
	t.Helper()
	if err := drawing.InsertRound(t.Context(), db, s.Hash(), s.sign(number)); err != nil {
		t.Fatal(err)
	}
}

// drawerWith returns a drawer; without relays of the test's own it has some that tell the newest
// round.
func drawerWith(t *testing.T, db *pgxpool.Pool, options drawing.DrawerOptions) *drawing.Drawer {
	if options.Beacon == nil {
		options.Beacon = &relays{db: db}
	}
	return drawing.NewDrawer(db, fixture.Key(t), settings, options, servers.Logger(t))
}

// frozen returns the freeze of a campaign.
func frozen(t *testing.T, db *pgxpool.Pool, id uuid.UUID) drawing.Freeze {
	t.Helper()
	f, ok, err := drawing.FreezeOf(t.Context(), db, id)
	if err != nil || !ok {
		t.Fatalf("it is not frozen: %v", err)
	}
	return f
}

func isFrozen(t *testing.T, db *pgxpool.Pool, id uuid.UUID) bool {
	t.Helper()
	_, ok, err := drawing.FreezeOf(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// waits expects a wait.
func waits(t *testing.T, err error) *drawing.Waiting {
	t.Helper()
	wait, ok := errors.AsType[*drawing.Waiting](err)
	if !ok {
		t.Fatalf("it does not wait: %v", err)
	}
	return wait
}
