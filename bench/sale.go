package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// connections is the number of concurrent buyers in the documents.
const connections = 500

// crowdedSale measures purchases through the real binaries, from the HTTP request to
// the final answer.
type crowdedSale struct {
	offer   func(measured time.Duration) offer
	workers int      // default 1
	buyers  int      // default connections
	payers  int      // users with wallets who pay in turn; 0: purchases are paid externally
	pairs   string   // as in crowd
	first   bool     // only the first campaign is bought from
	env     []string // settings of all processes
	traced  bool     // one trace in a hundred goes to a collector in this program
}

func (c crowdedSale) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	if c.traced {
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, spans *http.Request) { _, _ = io.Copy(io.Discard, spans.Body) }))
		defer collector.Close()
		c.env = append(slices.Clip(c.env), "TRIPRIZE_TRACING_OTLP_URL="+collector.URL, "TRIPRIZE_TRACING_SAMPLE_RATIO=0.01")
	}
	return s.onSale(ctx, c.offer(measured), func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, max(c.workers, 1), c.env...); err != nil {
			return r, err
		}
		if c.first {
			sys.campaigns = sys.campaigns[:1]
		}
		crowd := sys.crowd(connections)
		crowd.payers, crowd.pairs = c.payers, c.pairs
		if c.buyers > 0 {
			crowd.size = c.buyers
		}
		w := newWindow(sys.meter())
		seen, err := crowd.sell(ctx, w, measured)
		if err != nil {
			return r, err
		}
		r = w.result(seen)
		r.note("not final/s", perSecond(seen.measured[late], w.elapsed))
		r.note("refused/s", perSecond(seen.measured[refused], w.elapsed))
		r.noteUsage(w, seen.measured[succeeded])
		r.wrong, err = sys.finish(ctx, seen, c.each())
		return r, err
	})
}

// each is how many positions a purchase is of.
func (c crowdedSale) each() int {
	if c.pairs != "" {
		return 2
	}
	return 1
}

// sell lets the crowd buy for one window, which ends early when positions run out.
func (c *crowd) sell(ctx context.Context, w *window, measured time.Duration) (seen *observed, err error) {
	err = w.measure(ctx, measured, func() { seen = c.run(ctx, w) })
	return seen, err
}

// result is what a crowd has bought while the window was open.
func (w *window) result(seen *observed) result {
	r := newResult(seen.measured[succeeded], w.elapsed, seen.took[succeeded])
	if seen.measured[soldOut] > 0 {
		r.note("SOLD OUT, measured s", w.elapsed.Seconds())
	}
	return r
}

// finish stops the processes and compares the database with what the crowd has seen. Each
// purchase is of so many positions.
func (sys *system) finish(ctx context.Context, seen *observed, each int) ([]string, error) {
	wrong := append(seen.unexpectedAnswers(), sys.stop()...)
	found, err := sys.verify(ctx, expectation{each: each, bought: seen.whole[succeeded], jobs: seen.bought,
		open: seen.whole[late] + seen.whole[refused] + seen.whole[unexpected]})
	return append(wrong, found...), err
}

// grown is a sale in a system that has become large, or in one that has not: the same crowd
// buys from the same number of campaigns. The CPU time of one purchase is compared.
func grown(jobs, campaigns, wallets int) crowdedSale {
	return crowdedSale{payers: min(wallets, growthPayers), first: true, env: []string{"TRIPRIZE_LIMITS_USER_RATE=0"}, // few users pay often
		offer: func(measured time.Duration) offer {
			o := hot(measured)
			return offer{fmt.Sprintf("template_grown_%d_%d_%d", jobs, campaigns, wallets), slices.Concat(o.baseLengths, slices.Repeat([]int{20}, campaigns)),
				func(ctx context.Context, db *pgxpool.Pool) error {
					return errors.Join(fund(ctx, db, owners(wallets)), fillJobs(ctx, db, jobs, 20*24*time.Hour))
				}}
		}}
}

// growth are scenarios in pairs: small and large.
var growth = []scenario{
	{"1-job", grown(1, 0, 0).run},
	{"1M-jobs", grown(1_000_000, 0, 0).run},
	{"1-campaign", grown(0, 1, 0).run},
	{"1000-campaigns", grown(0, 1000, 0).run},
	{"1000-campaigns-on-sale", crowdedSale{offer: thousand}.run},
	{"256-wallets", grown(0, 0, growthPayers).run},
	{"100k-wallets", grown(0, 0, 100_000).run},
	{"old-records", oldRecords.run},
}

// growthPayers is the number of users who pay in turn. It is the same however many
// wallets there are: more payers would make batches of another kind.
const growthPayers = 256

// fillJobs makes finished jobs whose retention ends between now and the given time, or,
// when it is negative, ended since then.
func fillJobs(ctx context.Context, db *pgxpool.Pool, n int, expires time.Duration) error {
	_, err := db.Exec(ctx, `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, payload, state, result, attempts,
		                  accepted_at, finished_at, expires_at)
		SELECT (lpad(to_hex(1700000000000 + i), 12, '0') || '7000' || substr(md5(i::text), 1, 16))::uuid, 'bench', md5('k' || i), sha256(i::text::bytea),
		       'wallet-credit', NULL, 'user-' || md5(i::text), NULL, 'succeeded', json_build_object('id', md5(i::text), 'amount', 500), 1,
		       now() - interval '30 days', now() - interval '30 days', now() + i * $2::float8 * interval '1 second' / $1
		FROM generate_series(1, $1::int) AS i`, n, expires.Seconds())
	return err
}
