package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed documents.sql
var documentsSchema string

// documents measures the purchase transaction of the documents as they describe it:
// statement by statement, on as many connections as they recommend, all on one
// campaign. Like there, a failed attempt is not repeated.
type documents struct{ isolation string }

const (
	documentsTemplate    = "template_documents"
	documentsConnections = 50
	documentsLayers      = 50     // the longest base there
	documentsUsers       = 20_000 // buyers in turn; there is no purchase limit
	documentsPerSecond   = 1_000  // more than this transaction sells
)

// makeDocuments makes the schema of the documents with one campaign. A triangle of base
// 50 would be sold out within seconds, so the layers are longer here. The transaction
// picks from one layer, so this does not change it.
func (s *setup) makeDocuments(ctx context.Context, measured time.Duration) error {
	return s.makeTemplate(ctx, documentsTemplate, func(db *pgxpool.Pool) error {
		if _, err := db.Exec(ctx, documentsSchema); err != nil {
			return err
		}
		inLayer := int((warmUp(measured) + measured).Seconds()) * documentsPerSecond / documentsLayers
		var b pgx.Batch
		b.Queue(`INSERT INTO users SELECT gen_random_uuid() FROM generate_series(1, $1::int)`, documentsUsers)
		b.Queue(`INSERT INTO campaigns (name, base_length, positions_total, status) VALUES ('Hot', $1::int, $1::int * $2::int, 'active')`, documentsLayers, inLayer)
		b.Queue(`INSERT INTO positions (campaign_id, layer_number, row_number, col_number, price, status)
			SELECT campaign_id, layer, layer, col, 500, 'available'
			FROM campaigns, generate_series(1, $1::int) AS layer, generate_series(1, $2::int) AS col`, documentsLayers, inLayer)
		return db.SendBatch(ctx, &b).Close()
	})
}

// client is one of the concurrent buyers.
type client struct {
	pool      *pgxpool.Pool
	isolation string
	campaign  uuid.UUID
	users     []uuid.UUID
}

// attempts are the outcomes of the purchases of all clients.
type attempts struct {
	committed                atomic.Int64 // in the whole run
	aborted, timedOut, empty atomic.Int64 // while the window was open
}

func (d documents) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	if err := s.makeDocuments(ctx, measured); err != nil {
		return result{}, err
	}
	return s.on(ctx, documentsTemplate, func(sys *system) (result, error) {
		sys.settings.Postgres.MaxConnections = documentsConnections
		return sys.withPool(ctx, func(pool *pgxpool.Pool) (r result, err error) {
			clients, err := d.clients(ctx, pool)
			if err != nil {
				return r, err
			}
			w := newWindow(sys.meter())
			var seen attempts
			took, failures, err := w.repeat(ctx, measured, len(clients), func(i int) caller { return clients[i].buyer(ctx, w, &seen) })
			if err != nil {
				return r, err
			}
			r = newResult(len(took), w.elapsed, took)
			r.note("aborted/s", perSecond(int(seen.aborted.Load()), w.elapsed))
			r.note("lock timeouts/s", perSecond(int(seen.timedOut.Load()), w.elapsed))
			r.note("layer empty/s", perSecond(int(seen.empty.Load()), w.elapsed))
			r.noteUsage(w, len(took))
			r.wrong = failures
			var completed int64
			err = sys.db.QueryRow(ctx, `SELECT count(*) FROM purchases WHERE status = 'completed'`).Scan(&completed)
			if err == nil && completed != seen.committed.Load() {
				r.wrong = append(r.wrong, fmt.Sprintf("%d purchases are completed, %d were answered", completed, seen.committed.Load()))
			}
			return r, err
		})
	})
}

func (d documents) clients(ctx context.Context, pool *pgxpool.Pool) ([]*client, error) {
	var campaign uuid.UUID
	if err := pool.QueryRow(ctx, `SELECT campaign_id FROM campaigns`).Scan(&campaign); err != nil {
		return nil, err
	}
	rows, err := pool.Query(ctx, `SELECT user_id FROM users`)
	if err != nil {
		return nil, err
	}
	users, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	clients := make([]*client, documentsConnections)
	share := len(users) / len(clients)
	for i := range clients {
		clients[i] = &client{pool: pool, isolation: d.isolation, campaign: campaign, users: users[i*share : (i+1)*share]}
	}
	return clients, nil
}

// buyer makes attempts, each for another user. The committed ones count.
func (c *client) buyer(ctx context.Context, w *window, seen *attempts) caller {
	next := 0
	return func() (committed bool, err error) {
		user := c.users[next%len(c.users)]
		next++
		err = c.purchase(ctx, user, 1+rand.N(documentsLayers), uuid.NewString())
		outcome := &seen.committed
		switch {
		case err == nil:
			outcome.Add(1)
			return true, nil
		case sqlState(err) == "40001":
			outcome = &seen.aborted
		case sqlState(err) == "55P03":
			outcome = &seen.timedOut
		case errors.Is(err, errLayerEmpty):
			outcome = &seen.empty
		default:
			return false, err
		}
		if w.isOpen() {
			outcome.Add(1)
		}
		return false, nil
	}
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
