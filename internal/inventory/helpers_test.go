package inventory_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// fill lays out positions, layer k at the price 100 · k, and returns their campaign.
func fill(t *testing.T, db *pgxpool.Pool, baseLength int) uuid.UUID {
	t.Helper()
	id := uuid.New()
	prices := make([]money.Amount, baseLength)
	for i := range prices {
		prices[i] = money.Amount(100 * (i + 1))
	}
	if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO campaigns (id, name, base_length, currency, policies, positions_total) VALUES ($1, 'Board', $2, 'JPY', '{}', $2 * ($2 + 1) / 2)`, id, max(baseLength, 3)); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `INSERT INTO layers SELECT $1, n, 100 * n, n, n * (n - 1) / 2 + 1 FROM generate_series(1, $2::int) AS n`, id, baseLength); err != nil {
			return err
		}
		return inventory.Fill(t.Context(), tx, id, inventory.Plan{Shape: fixture.Triangle(baseLength), Prices: prices})
	}); err != nil {
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

// needs is so many positions of a layer; layer 0 is anywhere.
func needs(id uuid.UUID, layer, count int) inventory.Need {
	return inventory.Need{Pool: inventory.Pool{CampaignID: id, Layer: layer}, Count: count}
}

func find(t *testing.T, tx pgx.Tx, needs ...inventory.Need) []inventory.Free {
	t.Helper()
	free, err := inventory.FindFree(t.Context(), tx, needs)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// peek is find without keeping the locks.
func peek(t *testing.T, db *pgxpool.Pool, needs ...inventory.Need) (free []inventory.Free) {
	t.Helper()
	tx := begin(t, db)
	free = find(t, tx, needs...)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return free
}

// change sends what queue queues, as one transaction, and tells whether it was
// done: otherwise one of the rows was not what it should be, and nothing is done.
func change(t *testing.T, db postgres.Beginner, queue func(b *pgx.Batch)) (done bool) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		var b pgx.Batch
		queue(&b)
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if err != nil && !errors.Is(err, postgres.ErrRows) {
		t.Fatal(err)
	}
	return err == nil
}

func pointers(free []inventory.Free) []*inventory.Free {
	picked := make([]*inventory.Free, len(free))
	for i := range free {
		picked[i] = &free[i]
	}
	return picked
}

// sell sells free positions to one purchase.
func sell(t *testing.T, db postgres.Beginner, user string, purchase uuid.UUID, free ...inventory.Free) (done bool) {
	t.Helper()
	return change(t, db, func(b *pgx.Batch) {
		inventory.QueueSell(b, []inventory.Owned{{UserID: user, PurchaseID: purchase, Picked: pointers(free)}})
	})
}

// returns is what a purchase gives back, or has reserved.
func returns(purchase uuid.UUID, free ...inventory.Free) (list []inventory.Owned) {
	for _, f := range free {
		list = append(list, inventory.Owned{CampaignID: f.CampaignID, PurchaseID: purchase, Items: []shape.Item{{Place: fixture.OfTriangle(f.Position)}}})
	}
	return list
}

// newHold is a hold of free positions by the user "holder" that ends so much from now.
func newHold(in time.Duration, free ...inventory.Free) inventory.NewHold {
	h := inventory.NewHold{Picked: pointers(free), Hold: inventory.Hold{ID: uuid.New(), CampaignID: free[0].CampaignID, UserID: "holder", EndsBy: time.Now().Add(24 * time.Hour),
		State: inventory.HoldActive, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(in).Truncate(time.Microsecond)}}
	for _, f := range free {
		h.Positions = append(h.Positions, shape.Item{Place: fixture.OfTriangle(f.Position), Price: f.Price})
	}
	return h
}

// keep makes a hold, if it can be made.
func keep(t *testing.T, db *pgxpool.Pool, in time.Duration, free ...inventory.Free) (h inventory.Hold, done bool) {
	t.Helper()
	made := newHold(in, free...)
	return made.Hold, change(t, db, func(b *pgx.Batch) {
		if err := inventory.QueueHold(b, []inventory.NewHold{made}, inventory.HoldQuota{Max: 1000 * time.Hour}); err != nil {
			t.Error(err)
		}
	})
}

// kept makes a hold that must be made.
func kept(t *testing.T, db *pgxpool.Pool, in time.Duration, free ...inventory.Free) inventory.Hold {
	t.Helper()
	h, done := keep(t, db, in, free...)
	if !done {
		t.Fatalf("not held: %+v", free)
	}
	return h
}

// queueExtend extends one hold, queueRelease releases one.
func queueExtend(b *pgx.Batch, h inventory.Hold, deadline time.Time) {
	h.ExpiresAt = deadline
	h.Extensions++
	inventory.QueueExtend(b, []*inventory.Hold{&h})
}

func queueRelease(b *pgx.Batch, h inventory.Hold) { inventory.QueueRelease(b, []*inventory.Hold{&h}) }

// over is a hold as QueueFindOver finds it.
func overOf(h inventory.Hold) inventory.Over {
	return inventory.Over{ID: h.ID, CampaignID: h.CampaignID, UserID: h.UserID, Size: len(h.Positions)}
}

// set puts positions into a state by hand, for a purchase or a hold where the state has one.
func set(t *testing.T, db postgres.DB, state inventory.State, purchase uuid.UUID, free ...inventory.Free) {
	t.Helper()
	for _, f := range free {
		_, err := db.Exec(t.Context(), `
			UPDATE positions
			SET state = $4, version = version + 1, user_id = CASE WHEN $4 NOT IN ('available', 'blocked') THEN 'somebody' END,
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

// setBack gives a position back the version that a transaction has read of it.
func setBack(t *testing.T, db *pgxpool.Pool, f inventory.Free) {
	t.Helper()
	servers.Exec(t, db, `UPDATE positions SET version = $4 WHERE campaign_id = $1 AND layer = $2 AND col = $3`, f.CampaignID, f.Layer, f.Column, f.Version)
}

func all(t *testing.T, db postgres.DB, id uuid.UUID) []inventory.Position {
	t.Helper()
	positions, err := inventory.All(t.Context(), db, id)
	if err != nil {
		t.Fatal(err)
	}
	return positions
}

// row is what is not shown of a position.
type row struct {
	State    inventory.State
	Version  int
	Rank     int
	Purchase *uuid.UUID
	Dated    bool // it has the moment of its sale
}

func rowOf(t *testing.T, db postgres.DB, id uuid.UUID, at shape.Position) (r row) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT state, version, rank, purchase_id, sold_at IS NOT NULL FROM positions WHERE campaign_id = $1 AND layer = $2 AND col = $3`,
		id, at.Layer, at.Column).Scan(&r.State, &r.Version, &r.Rank, &r.Purchase, &r.Dated)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rows is every row of a campaign's positions, to be compared.
func rows(t *testing.T, db postgres.DB, id uuid.UUID) map[shape.Position]row {
	t.Helper()
	found := make(map[shape.Position]row)
	for _, p := range all(t, db, id) {
		r := rowOf(t, db, id, p.Position)
		r.Purchase = nil
		found[p.Position] = r
	}
	return found
}

// ranked returns what is free by rank, in a layer or anywhere, as the rows tell it,
// without the search under test.
func ranked(t *testing.T, db *pgxpool.Pool, id uuid.UUID, layer int) (free []inventory.Free) {
	t.Helper()
	for _, p := range all(t, db, id) {
		if r := rowOf(t, db, id, p.Position); r.State == inventory.Available && (layer == 0 || p.Layer == layer) {
			free = append(free, inventory.Free{PositionID: inventory.PositionID{CampaignID: id, Position: p.Position}, Rank: r.Rank, Price: p.Price, Version: r.Version})
		}
	}
	slices.SortFunc(free, byRank)
	return free
}

func byRank(a, b inventory.Free) int { return a.Rank - b.Rank }
