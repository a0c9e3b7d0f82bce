package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The plainest sale: three tables, and one transaction of three statements for a batch. It stays as it is, so that it
// is what others are measured by.
const (
	floorTemplate = documentsTemplate + "_floor"
	floorSchema   = `
		CREATE TABLE campaigns (id int PRIMARY KEY, sold int NOT NULL);
		CREATE TABLE positions (id int PRIMARY KEY, owner text);
		CREATE TABLE purchases (id uuid PRIMARY KEY, user_id text NOT NULL, position int NOT NULL REFERENCES positions, amount int NOT NULL, at timestamptz NOT NULL DEFAULT now());
		INSERT INTO campaigns VALUES (1, 0)`
	floorSell = `
		WITH free AS (SELECT id, row_number() OVER () AS n FROM (SELECT id FROM positions WHERE id > $1 AND owner IS NULL ORDER BY id LIMIT $2 FOR UPDATE) p),
		taken AS (UPDATE positions p SET owner = 'user-' || md5(f.id::text) FROM free f WHERE p.id = f.id RETURNING p.id, p.owner)
		INSERT INTO purchases (id, user_id, position, amount) SELECT gen_random_uuid(), owner, id, 500 FROM taken`
)

func runFloor(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	positions := int((warmUp(measured) + measured).Seconds() * 4 * mostPerSecond)
	err := s.makeTemplate(ctx, floorTemplate, func(db *pgxpool.Pool) error {
		_, err := db.Exec(ctx, floorSchema)
		if err == nil {
			_, err = db.Exec(ctx, `INSERT INTO positions SELECT generate_series(1, $1::int)`, positions)
		}
		return err
	})
	if err != nil {
		return result{}, err
	}
	return s.on(ctx, floorTemplate, func(sys *system) (r result, err error) {
		sold := 0
		w := newWindow(sys.meter())
		r, err = w.repeat(ctx, measured, 1, func(int) caller {
			return func() (bool, error) {
				if sold+saleBatch > positions {
					return false, errors.New("the machine has sold everything")
				}
				err := pgx.BeginFunc(ctx, sys.pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, `SELECT FROM campaigns WHERE id = 1 FOR UPDATE`); err != nil {
						return err
					}
					tag, err := tx.Exec(ctx, floorSell, sold, saleBatch)
					if err == nil && tag.RowsAffected() != saleBatch {
						err = fmt.Errorf("a batch of %d sold %d", saleBatch, tag.RowsAffected())
					}
					if err == nil {
						_, err = tx.Exec(ctx, `UPDATE campaigns SET sold = sold + $1 WHERE id = 1`, saleBatch)
					}
					return err
				})
				sold += saleBatch
				return true, err
			}
		})
		counted := r.figures[rate] * w.elapsed.Seconds() * saleBatch
		r.note(rate, divide(counted, w.elapsed.Seconds()))
		r.noteUsage(w, int(math.Round(counted)))
		return r, err
	})
}
