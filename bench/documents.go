package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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

// client is one of the concurrent buyers, with the outcomes of its attempts.
type client struct {
	pool      *pgxpool.Pool
	isolation string
	campaign  uuid.UUID
	users     []uuid.UUID

	committed, inWindow, aborted, timedOut, empty int
	took                                          []time.Duration
	unexpected                                    error
}

func (d documents) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	if err := s.makeDocuments(ctx, measured); err != nil {
		return r, err
	}
	sys, err := s.openSystem(ctx, documentsTemplate)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	settings := sys.settings.Postgres
	settings.MaxConnections = documentsConnections
	pool, err := postgres.Open(ctx, settings, "documents")
	if err != nil {
		return r, err
	}
	defer pool.Close()
	clients, err := d.clients(ctx, pool)
	if err != nil {
		return r, err
	}
	w := &window{meter: sys.meter()}
	var group sync.WaitGroup
	for _, c := range clients {
		group.Go(func() { c.buyUntilOver(ctx, w) })
	}
	err = w.pass(ctx, measured, nil)
	group.Wait()
	if err != nil {
		return r, err
	}
	return d.sum(ctx, sys, w, clients)
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

// sum adds up what the clients have seen and compares it with the database.
func (d documents) sum(ctx context.Context, sys *system, w *window, clients []*client) (r result, err error) {
	var all client
	for _, c := range clients {
		all.committed += c.committed
		all.inWindow += c.inWindow
		all.aborted += c.aborted
		all.timedOut += c.timedOut
		all.empty += c.empty
		all.took = append(all.took, c.took...)
		all.unexpected = errors.Join(all.unexpected, c.unexpected)
	}
	r = newResult(all.inWindow, w.elapsed, all.took)
	r.note("aborted/s", perSecond(all.aborted, w.elapsed))
	r.note("lock timeouts/s", perSecond(all.timedOut, w.elapsed))
	r.note("layer empty/s", perSecond(all.empty, w.elapsed))
	r.noteUsage(w, all.inWindow)
	if all.unexpected != nil {
		r.wrong = append(r.wrong, "unexpected error: "+all.unexpected.Error())
	}
	var completed int
	err = sys.db.QueryRow(ctx, `SELECT count(*) FROM purchases WHERE status = 'completed'`).Scan(&completed)
	if err == nil && completed != all.committed {
		r.wrong = append(r.wrong, fmt.Sprintf("%d purchases are completed, %d were answered", completed, all.committed))
	}
	return r, err
}

// buyUntilOver makes one attempt after the other, each for another user.
func (c *client) buyUntilOver(ctx context.Context, w *window) {
	for i := 0; !w.isOver() && ctx.Err() == nil; i++ {
		start := time.Now()
		err := c.purchase(ctx, c.users[i%len(c.users)], 1+rand.N(documentsLayers), uuid.NewString())
		one := 0
		if w.isOpen() {
			one = 1
		}
		switch {
		case err == nil:
			c.committed++
			if c.inWindow += one; one > 0 {
				c.took = append(c.took, time.Since(start))
			}
		case ctx.Err() != nil:
		case sqlState(err) == "40001":
			c.aborted += one
		case sqlState(err) == "55P03":
			c.timedOut += one
		case errors.Is(err, errLayerEmpty):
			c.empty += one
		default:
			c.unexpected = err
		}
	}
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
