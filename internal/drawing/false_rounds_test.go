package drawing_test

import (
	"crypto/sha256"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// lie stores rounds that do not verify, as somebody does who has a credential of the fleet.
func (s signer) lie(t *testing.T, db *pgxpool.Pool, forger signer, numbers ...uint64) {
	t.Helper()
	for _, n := range numbers {
		for _, signature := range [][]byte{forger.sign(n).Signature, s.sign(n + 1).Signature, []byte("none"), {}} {
			r := beacon.Round{Number: n, Signature: signature, Randomness: sha256.Sum256(signature)}
			if err := drawing.InsertRound(t.Context(), db, s.Hash(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What is stored is believed only when it verifies, and a row that does not keeps out none that does.
func TestAStoredRoundThatDoesNotVerifyStopsNoDraw(t *testing.T) {
	t.Parallel()
	for name, bring := range map[string]func(*testing.T, *pgxpool.Pool, *relays, signer, uuid.UUID, uint64){
		"from a relay": func(_ *testing.T, _ *pgxpool.Pool, r *relays, s signer, _ uuid.UUID, _ uint64) {
			r.serve(func(n uint64) (beacon.Round, error) { return s.sign(n), nil })
		},
		"from anybody": func(t *testing.T, db *pgxpool.Pool, _ *relays, s signer, id uuid.UUID, number uint64) {
			for range 2 { // it is stored already then
				if got, err := drawing.SubmitRound(t.Context(), db, id, s.sign(number).Signature); err != nil || got.Randomness != s.sign(number).Randomness {
					t.Errorf("brought: %+v, %v", got, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, clock := servers.DBWithClock(t)
			s, forger := newSigner(t), newSigner(t)
			id := withBeacon(t, db, s)
			ref := fixture.SellOut(t, db, id)
			now, err := drawing.Now(t.Context(), db)
			if err != nil {
				t.Fatal(err)
			}
			s.lie(t, db, forger, s.RoundAt(now)+1_000_000) // as if the clock were behind
			served := &relays{db: db}
			drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: served})
			_, err = drawer.Run(t.Context(), ref)
			_ = waits(t, err)
			number := *frozen(t, db, id).Round
			s.lie(t, db, forger, number)
			_, err = drawer.Run(t.Context(), ref)
			if wait := waits(t, err); !wait.RetryAt.Equal(s.DueAt(number)) {
				t.Errorf("it waits until %s, its round is due at %s", wait.RetryAt, s.DueAt(number))
			}
			come(t, db, clock, s, number)
			_, err = drawer.Run(t.Context(), ref)
			_ = waits(t, err) // no relay has it
			bring(t, db, served, s, id, number)
			if _, err := drawer.Run(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			d, _, err := drawing.DrawOf(t.Context(), db, id)
			if want := s.sign(number).Randomness; err != nil || string(d.Randomness) != string(want[:]) || state(t, db, id) != campaign.Completed {
				t.Errorf("drawn with %x, %v", d.Randomness, err)
			}
			if n := servers.Value[int](t, db, `SELECT count(*) FROM beacon_rounds WHERE round = $1`, number); n != 5 {
				t.Errorf("%d rows are stored of the round, want 4 false ones and the true one", n)
			}
			removeFalse(t, db, s, number)
			fixture.Sound(t, db)
		})
	}
}

// Whatever is stored of a round protects the buyers from a void, until the owner of the tables removes it.
func TestAFalseRoundIsRemovedByTheOwnerBeforeAVoid(t *testing.T) {
	t.Parallel()
	db, s := servers.DB(t), newSigner(t)
	id := withBeacon(t, db, s)
	ref := fixture.SellOut(t, db, id)
	_, err := drawerWith(t, db, drawing.DrawerOptions{}).Run(t.Context(), ref)
	_ = waits(t, err)
	number := *frozen(t, db, id).Round
	known := func() (stuck drawing.Stuck) {
		in(t, db, func(tx pgx.Tx) (err error) { stuck, err = drawing.StuckOf(t.Context(), tx, id); return err })
		return stuck
	}
	s.lie(t, db, newSigner(t), number)
	if !known().RoundKnown {
		t.Error("a void passes by what is stored")
	}
	removeFalse(t, db, s, number)
	if known().RoundKnown {
		t.Error("a round is known that nobody has")
	}
}

// removeFalse removes the rows of a round that do not verify, as docs/operations.md says.
func removeFalse(t *testing.T, db *pgxpool.Pool, s signer, number uint64) {
	t.Helper()
	rows, err := drawing.RowsOf(t.Context(), db, s.Hash(), number)
	if err != nil {
		t.Fatal(err)
	}
	in(t, db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `ALTER TABLE beacon_rounds DISABLE TRIGGER beacon_rounds_are_immutable`)
		for _, r := range rows {
			if _, err := s.Verify(number, r.Signature); err != nil {
				servers.Exec(t, tx, `DELETE FROM beacon_rounds WHERE round = $1 AND signature = $2`, number, r.Signature)
			}
		}
		servers.Exec(t, tx, `ALTER TABLE beacon_rounds ENABLE TRIGGER beacon_rounds_are_immutable`)
		return nil
	})
}
