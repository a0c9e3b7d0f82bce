package drawing_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/keyring"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/trail"
	"triprize/sandbox/drandsim"
)

// From the freeze on the draw waits for its round. Meanwhile nothing is held; everybody can read the
// record, and what is waited for.
func TestADrawWithABeaconIsFrozenAndWaitsForItsRoundHoldingNothing(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	ref := withBeacon(t, db, chain)
	id, drawer := ref.CampaignID, newDrawer(t, db)
	if isFrozen(t, db, id) {
		t.Error("the sale has frozen it")
	}
	for range 3 { // however often it is delivered
		wait, f := waits(t, drawer, ref), freezeOf(t, db, id)
		if due := chain.DueAt(*f.Round); !wait.RetryAt.Equal(due) || wait.After <= 0 || due.Sub(f.FrozenAt) < 9*time.Minute {
			t.Errorf("frozen at %s, its round is due at %s; tried again at %s, in %s", f.FrozenAt, due, wait.RetryAt, wait.After)
		}
		noted(t, db, id, wait)
		j := fixture.Job(t, db, ref.ID)
		if j.State != job.Queued || j.Progress == nil || j.Progress.Waiting == nil || j.Progress.Waiting.Reason != wait.Reason {
			t.Errorf("the job is %s, %+v", j.State, j.Progress)
		}
		if lock, _ := execution(t, db, id); lock != nil {
			t.Errorf("lock %v: it is held for a round that is not due", lock)
		}
	}
	f := freezeOf(t, db, id)
	var record fairdraw.FreezeRecord
	if err := json.Unmarshal(f.Record, &record); err != nil || record.Secret == nil || record.Round == nil {
		t.Errorf("the record is %s, %v", f.Record, err)
	}
	fixture.Sound(t, db)
	know(t, db, chain, *f.Round)
	drawn(t, drawer, ref)
	d, _, err := drawing.DrawOf(t.Context(), db, id)
	want := chain.Sign(*f.Round).Randomness
	if err != nil || d.Trust != fairdraw.TrustBeacon || string(d.Randomness) != string(want[:]) || d.Secret != *record.Secret {
		t.Errorf("drawn as %+v, %v", d, err)
	}
	if _, left, err := fixture.DrawWait(t.Context(), db, id); err != nil || left {
		t.Errorf("it still waits: %v", err)
	}
	fixture.Sound(t, db)
}

// The round comes after the newest that anybody can know of, by the clock or by the
// beacon itself.
func TestTheRoundComesAfterTheNewestThatIsKnown(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for ahead, limit := range map[int]bool{0: true, 9: true, 60: false, -9: true, -12: false} {
		chain := newChain(t)
		newest := uint64(int(chain.RoundAt(time.Now())) + ahead)
		ref := withBeacon(t, db, chain)
		id := ref.CampaignID
		wait := waits(t, drawerWith(t, db, drawing.DrawerOptions{Beacon: &relays{latest: func() (beacon.Round, error) { return chain.Sign(newest), nil }}}), ref)
		if !limit { // the clock is an hour behind
			if isFrozen(t, db, id) || wait.After < time.Second || wait.After > 30*time.Second {
				t.Errorf("%d rounds ahead: frozen, or tried again in %s", ahead, wait.After)
			}
			if lock, _ := execution(t, db, id); lock != nil {
				t.Error("it waits with the lock")
			}
			continue
		}
		f := freezeOf(t, db, id)
		if want := max(newest, chain.RoundAt(f.FrozenAt)) + fairdraw.RoundsAhead; *f.Round != want {
			t.Errorf("%d rounds ahead: the round is %d, want %d", ahead, *f.Round, want)
		}
		if n := servers.Value[int](t, db, `SELECT count(*) FROM beacon_rounds WHERE round = $1`, newest); n != 1 {
			t.Error("the newest round is not stored")
		}
	}
	fixture.Sound(t, db)
}

// What a relay says is believed only when the pinned key has signed it. The draw waits for
// the truth, however long: nothing weaker replaces it.
func TestRelaysThatLieOrAreAwayDelayADrawAndNeverChangeIt(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	chain := newChain(t)
	forger, ref := forgerOf(t, chain), withBeacon(t, db, chain)
	lying := &relays{latest: func() (beacon.Round, error) { return forger.Sign(chain.RoundAt(time.Now()) + 5), nil }}
	drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: lying})
	if waits(t, drawer, ref); isFrozen(t, db, ref.CampaignID) {
		t.Fatal("a lie has confirmed the clock")
	}
	waits(t, newDrawer(t, db), ref)
	number := *freezeOf(t, db, ref.CampaignID).Round
	come(t, db, clock, chain, number)
	for name, lie := range map[string]func(uint64) (beacon.Round, error){
		"away":               away,
		"another key":        func(n uint64) (beacon.Round, error) { return forger.Sign(n), nil },
		"the round before":   func(n uint64) (beacon.Round, error) { return chain.Sign(n - 1), nil },
		"under another name": func(n uint64) (beacon.Round, error) { r := chain.Sign(n + 1); r.Number = n; return r, nil },
		"no signature":       func(n uint64) (beacon.Round, error) { return beacon.Round{Number: n}, nil },
	} {
		lying.serve(0, lie)
		if wait := waits(t, drawer, ref); wait.After < time.Second || wait.After > 30*time.Second {
			t.Errorf("%s: tried again in %s", name, wait.After)
		}
	}
	if _, err := drawerWith(t, db, drawing.DrawerOptions{}).Run(t.Context(), ref); err == nil {
		t.Error("a worker without relays has drawn")
	}
	if n := servers.Value[int](t, db, `SELECT count(*) FROM beacon_rounds WHERE round = $1`, number); n != 0 {
		t.Errorf("%d rounds are stored", n)
	}
	lying.serve(0, func(n uint64) (beacon.Round, error) { // the truth, with false randomness beside it
		r := chain.Sign(n)
		r.Randomness = [32]byte{1}
		return r, nil
	})
	drawn(t, drawer, ref)
	fixture.Sound(t, db)
}

// The winners come from the list that was stored at the freeze, and from no other.
func TestADrawTakesTheStoredListAndNoOther(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	ref, number := frozen(t, db, chain)
	id, drawer := ref.CampaignID, newDrawer(t, db)
	know(t, db, chain, number)
	fixture.TamperList(t, db, id)
	if _, err := drawer.Run(t.Context(), ref); !errors.Is(err, drawing.ErrNotFrozenList) {
		t.Errorf("with another list: %v", err)
	}
	if lock, _ := execution(t, db, id); lock != nil || state(t, db, id) != campaign.Drawing {
		t.Errorf("lock %v, the campaign is %s", lock, state(t, db, id))
	}
	fixture.TamperList(t, db, id)
	servers.Exec(t, db, `UPDATE purchases SET user_id = user_id || '?' WHERE campaign_id = $1`, id)
	drawn(t, drawer, ref) // with other purchases
	servers.Exec(t, db, `UPDATE purchases SET user_id = rtrim(user_id, '?') WHERE campaign_id = $1`, id)
	fixture.Sound(t, db)
}

// A wrong key delays one draw and nobody else. With a beacon the record reveals the
// secret, so from the freeze on no key is needed.
func TestAWrongKeyFreezesNothingAndTheRightOneGoesOn(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	ref := withBeacon(t, db, chain)
	wrong := drawing.NewDrawer(db, ring(t, keyring.NewKey(), ""), settings, drawing.DrawerOptions{}, servers.Logger(t))
	if _, err := wrong.Run(t.Context(), ref); err == nil || isFrozen(t, db, ref.CampaignID) {
		t.Errorf("frozen with another key: %v", err)
	}
	waits(t, newDrawer(t, db), ref)
	know(t, db, chain, *freezeOf(t, db, ref.CampaignID).Round)
	drawn(t, wrong, ref) // the secret is public by now
	fixture.Sound(t, db)
}

// A draw without the round that its freeze record names is refused by the table, and so is a second one.
func TestNobodyRecordsADrawThatIsWeakerThanItsRules(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	insert := func(id uuid.UUID, trust string, randomness []byte) error {
		_, err := db.Exec(t.Context(), `
			INSERT INTO draws (campaign_id, trust, root, secret, randomness, winners, execution_version)
			VALUES ($1, $2, sha256('root'), sha256('secret'), $3, '[]', 1)`, id, trust, randomness)
		return err
	}
	ref, number := frozen(t, db, chain)
	know(t, db, chain, number)
	know(t, db, chain, number+1)
	right, next := chain.Sign(number).Randomness, chain.Sign(number+1).Randomness
	for name, c := range map[string]struct {
		id         uuid.UUID
		trust      string
		randomness []byte
	}{
		"without a freeze":                 {withBeacon(t, db, chain).CampaignID, fairdraw.TrustOperator, []byte{}},
		"without a beacon":                 {ref.CampaignID, fairdraw.TrustOperator, []byte{}},
		"as an operator, with a round":     {ref.CampaignID, fairdraw.TrustOperator, right[:]},
		"without randomness":               {ref.CampaignID, fairdraw.TrustBeacon, []byte{}},
		"with another round":               {ref.CampaignID, fairdraw.TrustBeacon, next[:]},
		"with invented randomness":         {ref.CampaignID, fairdraw.TrustBeacon, make([]byte, 32)},
		"with a beacon that no rules name": {fixture.Campaign(t, db, fixture.Draft(3)), fairdraw.TrustBeacon, right[:]},
	} {
		if err := insert(c.id, c.trust, c.randomness); err == nil {
			t.Errorf("%s: it was recorded", name)
		}
	}
	if err := insert(ref.CampaignID, fairdraw.TrustBeacon, right[:]); err != nil {
		t.Errorf("with its round: %v", err)
	}
	err := insert(ref.CampaignID, fairdraw.TrustBeacon, right[:]) // without any lock
	if no, ok := errors.AsType[*pgconn.PgError](err); !ok || no.ConstraintName != "draws_pkey" {
		t.Errorf("a second draw: %v", err)
	}
}

func TestDrawRecordsAreNeverChangedDeletedOrTruncated(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	ref, number := frozen(t, db, chain)
	know(t, db, chain, number)
	drawn(t, newDrawer(t, db), ref)
	for table, change := range map[string]string{"commitments": "commitment = sha256(commitment)", "freezes": "root = sha256(root)", "draws": "secret = sha256(secret)",
		"freeze_subtrees": "hash = sha256(hash)", "beacon_chains": "period_s = 7", "beacon_rounds": "round = round + 1"} {
		if n := servers.Value[int](t, db, `SELECT count(*) FROM `+table); n == 0 {
			t.Errorf("%s is empty: the test does not test", table)
		}
		for _, sql := range []string{"UPDATE " + table + " SET " + change, "DELETE FROM " + table, "TRUNCATE " + table + " CASCADE"} {
			_, err := db.Exec(t.Context(), sql)
			if no, ok := errors.AsType[*pgconn.PgError](err); !ok || no.ConstraintName != "append_only" {
				t.Errorf("%s: %v", sql, err)
			}
		}
	}
}

// A worker that stands still between its look at the clock and its commit would store a
// record whose round somebody knows already. The table refuses it when it commits. Without any lock, a
// second record is refused, too.
func TestARecordIsStoredOnceBeforeItsRoundIsDueOrNotAtAll(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	id := withBeacon(t, db, chain).CampaignID
	now := chain.RoundAt(time.Now())
	for _, c := range []struct {
		round   uint64
		refused string
	}{{now, "freezes_come_before_their_round"}, {now + 3600, ""}, {now + 3600, "freezes_pkey"}} {
		f := drawing.Freeze{CampaignID: id, Record: []byte("{}"), Root: fairdraw.Hash{1}, Count: 6, FrozenAt: time.Now(), Round: &c.round}
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return drawing.InsertFreeze(t.Context(), tx, f, nil, nil) })
		no, ok := errors.AsType[*pgconn.PgError](err)
		if ok != (c.refused != "") || ok && no.ConstraintName != c.refused || isFrozen(t, db, id) != (c.round > now) {
			t.Errorf("round %d at %d: %v", c.round, now, err)
		}
	}
}

// lie stores a round in four ways that do not verify, as somebody does who has a credential of the fleet.
func lie(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain, number uint64) {
	t.Helper()
	for _, signature := range [][]byte{forgerOf(t, chain).Sign(number).Signature, chain.Sign(number + 1).Signature, []byte("none"), {}} {
		r := beacon.Round{Number: number, Signature: signature, Randomness: sha256.Sum256(signature)}
		servers.NoError(t, drawing.InsertRound(t.Context(), db, chain.Hash(), r))
	}
}

// What is stored is believed only when it verifies, and a row that does not keeps out none that does.
func TestAStoredRoundThatDoesNotVerifyStopsNoDraw(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"a relay", "anybody"} {
		t.Run("from "+from, func(t *testing.T) {
			t.Parallel()
			db, clock := servers.DBWithClock(t)
			chain := newChain(t)
			ref := withBeacon(t, db, chain)
			id := ref.CampaignID
			now, err := drawing.Now(t.Context(), db)
			servers.NoError(t, err)
			lie(t, db, chain, chain.RoundAt(now)+1_000_000) // as if the clock were behind
			served := newRelays(db)
			drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: served})
			waits(t, drawer, ref)
			number := *freezeOf(t, db, id).Round
			lie(t, db, chain, number)
			if wait := waits(t, drawer, ref); !wait.RetryAt.Equal(chain.DueAt(number)) {
				t.Errorf("it waits until %s, its round is due at %s", wait.RetryAt, chain.DueAt(number))
			}
			come(t, db, clock, chain, number)
			waits(t, drawer, ref) // no relay has it
			if from == "a relay" {
				served.serve(0, func(n uint64) (beacon.Round, error) { return chain.Sign(n), nil })
			} else {
				operator := trail.With(t.Context(), &trail.Actor{Client: "ops", Via: "api", Operation: "submitDrawRound", Target: id.String()})
				for range 2 { // it is stored already then
					if got, err := drawing.SubmitRound(operator, db, id, chain.Sign(number).Signature); err != nil || got.Randomness != chain.Sign(number).Randomness {
						t.Errorf("brought: %+v, %v", got, err)
					}
				}
				if after := servers.Value[string](t, db, `SELECT string_agg(after::text, ', ') FROM audit_trail`); after != fmt.Sprintf(`{"round":%d}`, number) {
					t.Errorf("the audit trail has %s", after)
				}
			}
			drawn(t, drawer, ref)
			d, _, err := drawing.DrawOf(t.Context(), db, id)
			if want := chain.Sign(number).Randomness; err != nil || string(d.Randomness) != string(want[:]) || state(t, db, id) != campaign.Completed {
				t.Errorf("drawn with %x, %v", d.Randomness, err)
			}
			if n := servers.Value[int](t, db, `SELECT count(*) FROM beacon_rounds WHERE round = $1`, number); n != 5 {
				t.Errorf("%d rows are stored of the round, want 4 false ones and the true one", n)
			}
			removeFalse(t, db, chain, number)
			fixture.Sound(t, db)
		})
	}
}

// Whatever is stored of a round protects the buyers from a void, until the owner of the tables removes it.
func TestAFalseRoundIsRemovedByTheOwnerBeforeAVoid(t *testing.T) {
	t.Parallel()
	db, chain := servers.DB(t), newChain(t)
	ref, number := frozen(t, db, chain)
	known := func() (stuck drawing.StuckDraw) {
		in(t, db, func(tx pgx.Tx) (err error) { stuck, err = drawing.StuckOf(t.Context(), tx, ref.CampaignID); return err })
		return stuck
	}
	lie(t, db, chain, number)
	if !known().RoundKnown {
		t.Error("a void passes by what is stored")
	}
	removeFalse(t, db, chain, number)
	if known().RoundKnown {
		t.Error("a round is known that nobody has")
	}
}

// removeFalse removes the rows of a round that do not verify, as docs/operations.md says.
func removeFalse(t *testing.T, db *pgxpool.Pool, chain *drandsim.Chain, number uint64) {
	t.Helper()
	rows, err := drawing.RowsOf(t.Context(), db, chain.Hash(), number)
	servers.NoError(t, err)
	in(t, db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `ALTER TABLE beacon_rounds DISABLE TRIGGER beacon_rounds_are_immutable`)
		for _, r := range rows {
			if _, err := chain.Verify(number, r.Signature); err != nil {
				servers.Exec(t, tx, `DELETE FROM beacon_rounds WHERE round = $1 AND signature = $2`, number, r.Signature)
			}
		}
		servers.Exec(t, tx, `ALTER TABLE beacon_rounds ENABLE TRIGGER beacon_rounds_are_immutable`)
		return nil
	})
}
