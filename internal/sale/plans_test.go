package sale_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/sale"
	"triprize/internal/testkit/servers"
)

// In a database that is new, the planner would else read all jobs of the campaign.
func TestTheJobsOfABatchAreFoundByTheirIDs(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := uuid.New()
	servers.Exec(t, db, `INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, state, finished_at, expires_at)
		SELECT gen_random_uuid(), 'shop', n, sha256('x'), 'purchase', $1, 'succeeded', clock_timestamp(), clock_timestamp() FROM generate_series(1, 300) n`, campaign)
	index := regexp.MustCompile(`jobs_[a-z_]+|Seq Scan on jobs`)
	for _, statistics := range []string{"SELECT", "ANALYZE jobs"} {
		servers.Exec(t, db, statistics)
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			for what, sql := range sale.ReadsOfJobs {
				tx, err := db.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				servers.Exec(t, tx, `SET LOCAL plan_cache_mode = `+mode)
				servers.Exec(t, tx, `PREPARE reading AS `+sql)
				rows, err := tx.Query(t.Context(), `EXPLAIN EXECUTE reading (ARRAY['`+uuid.NewString()+`', '`+uuid.NewString()+`']::uuid[], ARRAY['`+campaign.String()+`']::uuid[])`)
				if err != nil {
					t.Fatal(err)
				}
				plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatal(err)
				}
				used := slices.Collect(func(yield func(string) bool) {
					for _, line := range plan {
						if name := index.FindString(line); name != "" && !yield(name) {
							return
						}
					}
				})
				if !slices.Equal(used, []string{"jobs_pkey"}) {
					t.Errorf("%s after %s, %s: %q", what, statistics, mode, plan)
				}
				servers.Exec(t, tx, `DEALLOCATE reading`)
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
