package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/postgres"
)

//go:embed documents.sql
var documentsSchema string

// documents measures the purchase transaction of the documents as they describe it:
// statement by statement, on as many connections as they recommend, all on one
// campaign. Like there, a failed attempt is not repeated.
type documents struct {
	isolation string
	locked    string // what happens at a locked position, in SQL; default SKIP LOCKED
	hot       bool   // all buy from a layer of ten positions, then from the next; each tries until it has one
}

const (
	documentsTemplate    = "template_documents"
	documentsConnections = 50
	documentsLayers      = 50                    // the longest base there
	documentsUsers       = 20_000                // there is no purchase limit
	documentsPerSecond   = 1_000                 // more than this transaction sells
	hotPositions         = 10                    // of their comparison of locks
	hotPause             = 50 * time.Millisecond // at most, before a user tries again
)

// run makes the schema of the documents with one campaign. A triangle of base 50 would be
// sold out within seconds, so the layers are longer here. The transaction picks from one
// layer, so this does not change it.
func (d documents) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	layers, inLayer := documentsLayers, int((warmUp(measured)+measured).Seconds())*documentsPerSecond/documentsLayers
	template := documentsTemplate
	if d.hot {
		layers, inLayer, template = layers*inLayer/hotPositions, hotPositions, documentsTemplate+"_hot"
	}
	if err := s.makeTemplate(ctx, template, func(db *pgxpool.Pool) error {
		if _, err := db.Exec(ctx, documentsSchema); err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue(`INSERT INTO users SELECT gen_random_uuid() FROM generate_series(1, $1::int)`, documentsUsers)
		b.Queue(`INSERT INTO campaigns (name, base_length, positions_total, status) VALUES ('Hot', $3::int, $1::int * $2::int, 'active')`, layers, inLayer, documentsLayers)
		b.Queue(`INSERT INTO positions (campaign_id, layer_number, row_number, col_number, price, status)
			SELECT campaign_id, layer, layer, col, 500, 'available'
			FROM campaigns, generate_series(1, $1::int) AS layer, generate_series(1, $2::int) AS col`, layers, inLayer)
		return db.SendBatch(ctx, &b).Close()
	}); err != nil {
		return result{}, err
	}
	return s.on(ctx, template, func(sys *system) (r result, err error) {
		sys.settings.Postgres.MaxConnections = documentsConnections
		pool, err := postgres.Open(ctx, sys.settings.Postgres, "triprize-bench")
		if err != nil {
			return r, err
		}
		defer pool.Close()
		var campaign uuid.UUID
		var users []uuid.UUID
		if err := pool.QueryRow(ctx, `SELECT (SELECT campaign_id FROM campaigns), array_agg(user_id) FROM users`).Scan(&campaign, &users); err != nil {
			return r, err
		}
		w := newWindow(sys.meter())
		var allocated, committed, aborted atomic.Int64
		r, err = w.repeat(ctx, measured, documentsConnections, func(int) caller {
			return func() (bool, error) {
				for {
					layer := 1 + rand.N(documentsLayers)
					if d.hot {
						layer = 1 + int(allocated.Load())/hotPositions
					}
					request := uuid.NewString()
					position, err := d.allocate(ctx, pool, campaign, users[rand.N(len(users))], layer, request)
					if err == nil {
						allocated.Add(1)
						err = d.complete(ctx, pool, position, request)
					}
					if err == nil {
						committed.Add(1)
						return true, nil
					}
					if pg, _ := errors.AsType[*pgconn.PgError](err); !errors.Is(err, errLayerEmpty) && (pg == nil || !slices.Contains(retryable, pg.Code)) {
						return false, err
					}
					aborted.Add(1)
					if !d.hot || w.isOver() {
						return false, nil
					}
					wait(ctx, rand.N(hotPause), nil)
				}
			}
		})
		if err != nil {
			return r, err
		}
		r.note("aborted in the whole run", float64(aborted.Load()))
		var completed int64
		err = sys.db.QueryRow(ctx, `SELECT count(*) FROM purchases WHERE status = 'completed'`).Scan(&completed)
		if completed < committed.Load() || completed > allocated.Load() {
			r.wrong = append(r.wrong, fmt.Sprintf("%d purchases are completed, %d were answered, %d allocated", completed, committed.Load(), allocated.Load()))
		}
		return r, err
	})
}

// retryable are serialization_failure, deadlock_detected and lock_not_available.
var retryable = []string{"40001", "40P01", "55P03"}

var errLayerEmpty = errors.New("no available positions in this layer")

// complete is the rest of purchasePosition of the documents after allocatePosition, a round trip for
// each statement. The payment costs nothing here, and the check whether a draw is due is left out.
// Both make the documents faster.
func (d documents) complete(ctx context.Context, pool *pgxpool.Pool, position uuid.UUID, request string) error {
	if _, err := pool.Exec(ctx, `
		UPDATE purchases
		SET payment_intent_id = $1,
		    status = 'completed',
		    completed_at = NOW()
		WHERE position_id = $2`, "pi_"+request, position); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, `
		UPDATE positions
		SET status = 'sold'
		WHERE position_id = $1`, position)
	return err
}

// allocate is allocatePosition of the documents: pick, reserve, record, count.
func (d documents) allocate(ctx context.Context, pool *pgxpool.Pool, campaign, user uuid.UUID, fromLayer int, request string) (position uuid.UUID, err error) {
	options := pgx.TxOptions{BeginQuery: `BEGIN TRANSACTION ISOLATION LEVEL ` + d.isolation}
	err = pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = 3000`); err != nil {
			return err
		}
		var count int
		if err := tx.QueryRow(ctx, `
			SELECT COUNT(*) as count
			FROM purchases
			WHERE campaign_id = $1
			  AND user_id = $2
			  AND status IN ('pending', 'completed')`, campaign, user).Scan(&count); err != nil {
			return err
		}
		var limit *int
		if err := tx.QueryRow(ctx, `SELECT purchase_limit FROM campaigns WHERE campaign_id = $1`, campaign).Scan(&limit); err != nil {
			return err
		}
		if limit != nil && count >= *limit {
			return errors.New("purchase limit exceeded")
		}
		var layer, row, col, price int
		err := tx.QueryRow(ctx, `
			SELECT position_id, layer_number, row_number, col_number, price
			FROM positions
			WHERE campaign_id = $1
			  AND layer_number = $2
			  AND status = 'available'
			ORDER BY RANDOM()
			LIMIT 1
			FOR UPDATE `+cmp.Or(d.locked, "SKIP LOCKED"), campaign, fromLayer).Scan(&position, &layer, &row, &col, &price)
		if errors.Is(err, pgx.ErrNoRows) {
			return errLayerEmpty
		}
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			UPDATE positions
			SET status = 'reserved',
			    user_id = $1,
			    reserved_at = NOW()
			WHERE position_id = $2`, user, position); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			INSERT INTO purchases (
			  purchase_id, user_id, campaign_id, position_id,
			  price, status, request_id, created_at
			) VALUES (
			  gen_random_uuid(), $1, $2, $3, $4, 'pending', $5, NOW()
			)`, user, campaign, position, price, request); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			UPDATE campaigns
			SET positions_sold = positions_sold + 1
			WHERE campaign_id = $1`, campaign)
		return err
	})
	return position, err
}
