package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
)

// connections is the number of concurrent buyers in the documents.
const connections = 500

// crowdedSale measures purchases through the real binaries, from the HTTP request to
// the final answer.
type crowdedSale struct {
	offer           offer         // default hot
	workers         int           // default 1
	buyers          int           // default connections
	payers          int           // how many users pay by wallet in turn; default: none
	paid            string        // default paidExternally
	each            int           // positions of a purchase; default 1
	first           bool          // only the first campaign is bought from
	every           time.Duration // each buys at fixed times so far apart; default: one after the other
	env             []string      // settings of all processes
	redis, postgres string        // kinds of servers of devstack; default: one of each, which the other scenarios use, too
	traced          bool          // one trace in a hundred goes to a collector in this program
}

func (c crowdedSale) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	if c.redis != "" || c.postgres != "" {
		servers := devstack.Options{Redis: c.redis, Postgres: c.postgres}
		c.redis, c.postgres = "", ""
		return s.with(ctx, servers, func(other *setup) (result, error) { return c.run(ctx, other, measured) })
	}
	if c.traced {
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, spans *http.Request) { _, _ = io.Copy(io.Discard, spans.Body) }))
		defer collector.Close()
		c.env = append(slices.Clip(c.env), "TRIPRIZE_TRACING_OTLP_URL="+collector.URL, "TRIPRIZE_TRACING_SAMPLE_RATIO=0.01")
	}
	if c.offer.name == "" {
		c.offer = hot
	}
	return s.onSale(ctx, c.offer, func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, max(c.workers, 1), c.env...); err != nil {
			return r, err
		}
		if c.first {
			sys.campaigns = sys.campaigns[:1]
		}
		crowd := sys.crowd(cmp.Or(c.buyers, connections))
		if crowd.payers, crowd.paid = c.payers, cmp.Or(c.paid, paidExternally); c.payers > 0 {
			crowd.paid = paidByWallet
		}
		crowd.every = c.every
		before, err := sys.written(ctx)
		if err != nil {
			return r, err
		}
		w := newWindow(sys.meter())
		seen, err := crowd.sell(ctx, w, max(measured, 2*c.every))
		if err != nil {
			return r, err
		}
		r = w.result(seen)
		r.note("not final/s", perSecond(seen.measured[late], w.elapsed))
		r.note("refused/s", perSecond(seen.measured[refused], w.elapsed))
		r.noteUsage(w, seen.measured[succeeded])
		r.note(perSecondOfCPU, divide(1e6, r.figures["µs api"]+r.figures["µs worker"]+r.figures["µs postgres"]+r.figures["µs redis"]))
		if r.figures[rowWait], err = sys.rowWait(ctx); err != nil {
			return r, err
		}
		after, err := sys.written(ctx)
		if err != nil {
			return r, err
		}
		for name, bytes := range after {
			r.note("bytes of "+name+" each", divide(bytes-before[name], float64(seen.whole[succeeded])))
		}
		r.wrong, err = sys.finish(ctx, seen, max(c.each, 1))
		return r, err
	})
}

// result is what a crowd has bought while the window was open.
func (w *window) result(seen *observed) result {
	r := newResult(seen.measured[succeeded], w.elapsed, seen.took[succeeded])
	if seen.measured[soldOut] > 0 {
		r.note("SOLD OUT, measured s", w.elapsed.Seconds())
	}
	return r
}

// grown is a sale in a system that has become large, or in one that has not: the same crowd
// buys from the same number of campaigns. The CPU time of one purchase is compared.
func grown(jobs, campaigns, wallets int) crowdedSale {
	return crowdedSale{payers: min(wallets, growthPayers), first: true, env: []string{"TRIPRIZE_LIMITS_USER_RATE=0"}, // few users pay often
		offer: offer{fmt.Sprintf("template_grown_%d_%d_%d", jobs, campaigns, wallets), append([]int{hotBase}, slices.Repeat([]int{20}, campaigns)...),
			func(ctx context.Context, db *pgxpool.Pool) error {
				return errors.Join(fund(ctx, db, owners(wallets)), fillJobs(ctx, db, jobs))
			}}}
}

// growthPayers is the number of users who pay in turn. It is the same however many
// wallets there are: more payers would make batches of another kind.
const growthPayers = 256

// fillJobs makes finished jobs whose retention ends within twenty days.
func fillJobs(ctx context.Context, db *pgxpool.Pool, n int) error {
	_, err := db.Exec(ctx, `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, payload, state, result, attempts,
		                  accepted_at, finished_at, expires_at)
		SELECT (lpad(to_hex(1700000000000 + i), 12, '0') || '7000' || substr(md5(i::text), 1, 16))::uuid, 'bench', md5('k' || i), sha256(i::text::bytea),
		       'wallet-credit', NULL, 'user-' || md5(i::text), NULL, 'succeeded', json_build_object('id', md5(i::text), 'amount', 500), 1,
		       now() - interval '30 days', now() - interval '30 days', now() + i * interval '20 days' / $1
		FROM generate_series(1, $1::int) AS i`, n)
	return err
}
