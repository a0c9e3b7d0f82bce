package board_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/triangle"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/board"
	"triprize/internal/testkit/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// fill lays out a board, layer k at the price 100 · k, and returns its campaign.
func fill(t *testing.T, db *pgxpool.Pool, baseLength int) uuid.UUID {
	t.Helper()
	id := uuid.New()
	prices := make([]int64, baseLength)
	for i := range prices {
		prices[i] = int64(100 * (i + 1))
	}
	if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return board.Fill(t.Context(), tx, id, prices) }); err != nil {
		t.Fatal(err)
	}
	return id
}

// begin begins a transaction that is rolled back at the end of the test at the latest.
func begin(t *testing.T, db *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func find(t *testing.T, tx pgx.Tx, needs ...board.Need) []board.Free {
	t.Helper()
	free, err := board.FindFree(t.Context(), tx, needs)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// peek is find without keeping the locks.
func peek(t *testing.T, db *pgxpool.Pool, needs ...board.Need) (free []board.Free) {
	t.Helper()
	tx := begin(t, db)
	free = find(t, tx, needs...)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return free
}

// sell sells free positions to one purchase and returns how many rows that touched.
func sell(t *testing.T, db postgres.DB, user string, purchase uuid.UUID, free ...board.Free) (touched int) {
	t.Helper()
	sales := make([]board.Sale, len(free))
	for i, f := range free {
		sales[i] = board.Sale{Free: f, UserID: user, PurchaseID: purchase}
	}
	var b pgx.Batch
	board.QueueSell(&b, sales).Exec(func(tag pgconn.CommandTag) error {
		touched = int(tag.RowsAffected())
		return nil
	})
	if err := db.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatal(err)
	}
	return touched
}

// set puts positions into a state by hand, for a purchase or a hold where the state has one.
func set(t *testing.T, db postgres.DB, state board.State, purchase uuid.UUID, free ...board.Free) {
	t.Helper()
	for _, f := range free {
		_, err := db.Exec(t.Context(), `
			UPDATE positions
			SET state = $4, version = version + 1, user_id = CASE WHEN $4 <> 'available' THEN 'somebody' END,
			    expires_at = CASE WHEN $4 IN ('held', 'reserved') THEN now() + interval '1 hour' END,
			    hold_id = CASE WHEN $4 = 'held' THEN $5::uuid END,
			    purchase_id = CASE WHEN $4 IN ('reserved', 'sold') THEN $5::uuid END,
			    sold_at = CASE WHEN $4 = 'sold' THEN now() END
			WHERE campaign_id = $1 AND layer = $2 AND col = $3`, f.CampaignID, f.Layer, f.Column, string(state), purchase)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func all(t *testing.T, db postgres.DB, id uuid.UUID) []board.Position {
	t.Helper()
	positions, err := board.All(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	return positions
}

// row is what the board does not show of a position.
type row struct {
	State    board.State
	Version  int
	Rank     int
	Purchase *uuid.UUID
	Dated    bool // it has the moment of its sale
}

func rowOf(t *testing.T, db postgres.DB, id uuid.UUID, at triangle.Position) (r row) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT state, version, rank, purchase_id, sold_at IS NOT NULL FROM positions WHERE campaign_id = $1 AND layer = $2 AND col = $3`,
		id, at.Layer, at.Column).Scan(&r.State, &r.Version, &r.Rank, &r.Purchase, &r.Dated)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
