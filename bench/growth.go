package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// grown measures purchases in a system that has become large, and in one that has not:
// the same crowd buys from the same number of campaigns. It compares the CPU time
// of one purchase.
type grown struct {
	jobs      int // finished ones in the table
	campaigns int // on sale, of 210 positions each, besides those that the crowd buys from
	wallets   int // in the table
}

// growth are scenarios in pairs: small and large.
var growth = []scenario{
	{"1-job", grown{jobs: 1}.run},
	{"1M-jobs", grown{jobs: 1_000_000}.run},
	{"1-campaign", grown{campaigns: 1}.run},
	{"1000-campaigns", grown{campaigns: 1000}.run},
	{"1000-campaigns-on-sale", crowdedSale{offer: thousand, workers: 1}.run},
	{"256-wallets", grown{wallets: growthPayers}.run},
	{"100k-wallets", grown{wallets: 100_000}.run},
	{"old-records", oldRecords{}.run},
}

// growthClaims are the targets of growth.
func growthClaims() []claim {
	const less = "less than 1.3"
	return []claim{
		{"cpu of a purchase, 1 M jobs / 1", less, "1M-jobs", "1-job", cpuOfEach},
		{"cpu of a purchase, 1,000 campaigns / 1", less, "1000-campaigns", "1-campaign", cpuOfEach},
		{"cpu of a purchase, 1,000 on sale / 1", less, "1000-campaigns-on-sale", "triprize-http", cpuOfEach},
		{"cpu of a purchase, 100,000 wallets / 256", less, "100k-wallets", "256-wallets", cpuOfEach},
		{"old-records: jobs deleted a second", "at least 5,600", "old-records", "", deletedEach},
		{"old-records: p95, disturbed / quiet", "at most 2", "old-records", "", disturbedP95},
	}
}

// growthPayers is the number of users who pay in turn. It is the same however many
// wallets there are: more payers would make batches of another kind.
const growthPayers = 256

// thousand is a thousand campaigns of 210 positions.
func thousand(time.Duration) offer {
	return offer{"template_thousand", slices.Repeat([]int{20}, 1000)}
}

func (g grown) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	o := hot(measured)
	o.name = fmt.Sprintf("template_grown_%d_%d_%d", g.jobs, g.campaigns, g.wallets)
	if err := s.makeTemplate(ctx, o.name, func(db *pgxpool.Pool) error { return g.fill(ctx, s, db, o) }); err != nil {
		return r, err
	}
	sys, err := s.openSale(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if err := sys.serve(ctx, 1, "TRIPRIZE_LIMITS_USER_RATE=0"); err != nil { // few users pay often
		return r, err
	}
	sys.campaigns = sys.campaigns[:1] // the first is the hot one
	sys.payers = min(g.wallets, growthPayers)
	w := &window{meter: sys.meter()}
	seen, err := sys.runCrowd(ctx, w, measured)
	if err != nil {
		return r, err
	}
	r = newResult(seen.measured[succeeded], w.elapsed, seen.took[succeeded])
	r.noteUsage(w, seen.measured[succeeded])
	r.wrong, err = sys.finish(ctx, seen)
	return r, err
}

// fill makes the campaign that is bought from, and what the system has grown by.
func (g grown) fill(ctx context.Context, s *setup, db *pgxpool.Pool, o offer) error {
	bases := slices.Concat(o.baseLengths, slices.Repeat([]int{20}, g.campaigns))
	if err := s.publish(ctx, db, bases); err != nil {
		return err
	}
	if err := fund(ctx, db, owners(g.wallets)); err != nil {
		return err
	}
	return fillJobs(ctx, db, g.jobs, 20*24*time.Hour)
}

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
