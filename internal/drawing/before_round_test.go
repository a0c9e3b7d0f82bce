package drawing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize.example/draw/fairdraw"
	"triprize/internal/drawing"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A worker that stands still between its look at the clock and its commit would store a
// record whose round somebody knows already. The table refuses it when it commits.
func TestARecordIsStoredBeforeItsRoundIsDueOrNotAtAll(t *testing.T) {
	t.Parallel()
	db, s := servers.DB(t), newSigner(t)
	id := withBeacon(t, db, s)
	fixture.SellOut(t, db, id)
	store := func(round uint64) error {
		f := drawing.Freeze{CampaignID: id, Record: []byte("{}"), Root: fairdraw.Hash{1}, Count: 6, FrozenAt: time.Now(), Round: &round}
		return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return drawing.InsertFreeze(t.Context(), tx, f, nil, nil) })
	}
	err := store(s.RoundAt(time.Now()))
	if no, ok := errors.AsType[*pgconn.PgError](err); !ok || no.ConstraintName != "freezes_come_before_their_round" {
		t.Errorf("a round that is due: %v", err)
	}
	if isFrozen(t, db, id) {
		t.Error("it is stored")
	}
	if err := store(s.RoundAt(time.Now()) + 3600); err != nil {
		t.Errorf("a round that nobody knows: %v", err)
	}
}
