//go:build soak

package e2e

import (
	"testing"

	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// A million expired jobs are deleted while a sale goes on, and none of its own. The sweep
// runs with its default settings.
func TestSoakAMillionOldJobsGoBesideASale(t *testing.T) {
	t.Parallel()
	const old, buyers, orders = 1_000_000, 10, 300
	s := fleet.Start(t, fleet.Options{Binaries: true, Schedulers: -1})
	for range 200 {
		servers.Exec(t, s.DB, `
			INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, user_id, state, result, attempts, accepted_at, finished_at, expires_at)
			SELECT gen_random_uuid(), 'soak', gen_random_uuid()::text, sha256(i::text::bytea), 'wallet-credit', 'u', 'succeeded', '{}', 1,
			       clock_timestamp() - interval '2 days', clock_timestamp() - interval '2 days', clock_timestamp() - interval '1 day'
			FROM generate_series(1, $1) AS i`, old/200)
	}
	id := s.Campaign(40) // 820 positions: most orders come too late
	s.RunScheduler()
	run := openSale(s, id, buyers, orders)
	servers.Eventually(t, "every old job is gone", func() bool {
		return !servers.Value[bool](t, s.DB, `SELECT EXISTS (SELECT FROM jobs WHERE client = 'soak')`)
	})
	run.wantSoldOut(820)
	if kept := servers.Value[int](t, s.DB, `SELECT count(*) FROM jobs WHERE kind = 'purchase'`); kept != len(run.promised) {
		t.Errorf("%d of %d jobs of the sale are there", kept, len(run.promised))
	}
}
