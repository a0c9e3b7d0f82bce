package job_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// many makes jobs of two clients, in two campaigns, of many users; every hundredth has
// failed, and a few are of a kind that is rare.
func many(t *testing.T, db *pgxpool.Pool, n int, first, second uuid.UUID) {
	t.Helper()
	_, err := db.Exec(t.Context(), `
		INSERT INTO jobs (id, client, idempotency_key, request_hash, kind, campaign_id, user_id, state, problem, finished_at, payload, expires_at)
		SELECT (lpad(to_hex(1700000000000 + i), 12, '0') || '7000' || substr(md5(i::text), 1, 16))::uuid,
		       CASE WHEN i % 50 = 0 THEN 'kiosk' ELSE 'shop' END, i::text, sha256(i::text::bytea),
		       CASE WHEN i % 5000 = 1 THEN 'campaign-pause' ELSE 'purchase' END, CASE WHEN i % 10 = 0 AND i < $1 / 2 THEN $2::uuid ELSE $3::uuid END, 'user-' || i % 1000,
		       CASE WHEN i % 100 = 7 THEN 'failed' ELSE 'succeeded' END, CASE WHEN i % 100 = 7 THEN '{"code":"sold-out","detail":"x"}'::json END, now(),
		       CASE WHEN i % 500 = 7 THEN json_build_object('payment', json_build_object('reference', 'order-' || i % 1000)) END, now() + interval '1 day'
		FROM generate_series(1, $1::int) AS i`, n, first, second)
	servers.NoError(t, err)
	servers.Exec(t, db, `VACUUM (ANALYZE, INDEX_CLEANUP ON) jobs`)
}

func TestAPageOfJobsReadsNoMoreThanItHas(t *testing.T) {
	t.Parallel()
	const n, limit = 30_000, 20
	db, first, second := servers.DB(t), uuid.New(), uuid.New()
	many(t, db, n, first, second)
	servers.Exec(t, db, `TRUNCATE api_clients CASCADE`) // the test before may have left dead rows, which an index scan counts
	servers.Exec(t, db, `INSERT INTO api_clients (name, role) VALUES ('shop', 'app'), ('kiosk', 'app')`)
	reads := servers.CountReads(t, db)
	type page struct {
		filter job.Filter
		most   int
	}
	pages := map[string]page{
		"all":                      {job.Filter{}, 2 * limit},
		"a client's":               {job.Filter{Client: "shop"}, 2 * limit},
		"a small client's":         {job.Filter{Client: "kiosk"}, 2 * limit},
		"a campaign's":             {job.Filter{CampaignID: first}, 2 * limit},
		"a user's":                 {job.Filter{UserID: "user-7"}, 2 * limit},
		"a client's of a user":     {job.Filter{Client: "shop", UserID: "user-7"}, 2 * limit},
		"a client's of a campaign": {job.Filter{Client: "shop", CampaignID: second}, 2 * limit},
		"a small client's of one":  {job.Filter{Client: "kiosk", CampaignID: first}, n/50 + 2*limit},
		"a client that has none":   {job.Filter{Client: "nobody", CampaignID: first}, 4},
		"a user that has none":     {job.Filter{UserID: "nobody"}, 2},
		"of a rare kind":           {job.Filter{Kind: job.KindCampaignPause}, 2 * limit},
		"that are open":            {job.Filter{State: job.Queued}, 2},
		"that have failed":         {job.Filter{State: job.Failed}, postgres.ListWindow},
		"with a code":              {job.Filter{Client: "shop", Code: fault.SoldOut}, postgres.ListWindow},
		"of a key":                 {job.Filter{Key: "7"}, 4 + 2*4},
		"a client's of a key":      {job.Filter{Client: "kiosk", Key: "50"}, 2},
		"a user's of a key":        {job.Filter{UserID: "user-7", Key: "7"}, 3*n/1000 + 4},
		"a user's of a reference":  {job.Filter{UserID: "user-7", Reference: "order-7"}, 3*n/1000 + 4},
		"with a code none has":     {job.Filter{Code: fault.InternalError}, 2*postgres.ListWindow + 10},
	}
	// The index has only kinds that are rare, so the condition must be the same in both.
	for _, kind := range []job.Kind{job.KindDraw, job.KindCampaignCancellation, job.KindCampaignCreate, job.KindCampaignPublish, job.KindCampaignResume,
		job.KindRefundRetry, job.KindRefundResolve, job.KindPaymentRetry, job.KindPaymentResolve} {
		pages["of the kind "+string(kind)+", that none has"] = page{job.Filter{Kind: kind}, 2}
	}
	for name, c := range pages {
		list, _, err := job.List(t.Context(), reads, c.filter, postgres.ListPage{Limit: limit})
		if err != nil {
			t.Fatal(name, err)
		}
		if rows, plan := reads.Rows(); rows > c.most || len(list) > limit {
			t.Errorf("%s: %d jobs, %d rows looked at, want %d at most: %s", name, len(list), rows, c.most, plan)
		}
	}
}

// all reads a list to its end, and wants it in order.
func all(t *testing.T, db postgres.DB, f job.Filter) (ids []uuid.UUID) {
	t.Helper()
	for p := (postgres.ListPage{Limit: 7}); ; {
		page, next, err := job.List(t.Context(), db, f, p)
		servers.NoError(t, err)
		for _, j := range page {
			ids = append(ids, j.ID)
		}
		if p.Before = next; next == uuid.Nil {
			break
		}
	}
	if !slices.IsSortedFunc(ids, func(a, b uuid.UUID) int { return -slices.Compare(a[:], b[:]) }) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("%+v is not in order: %v", f, ids)
	}
	return ids
}

func TestEachFilterFindsItsJobsAndNoOther(t *testing.T) {
	t.Parallel()
	db, first, second := servers.DB(t), uuid.New(), uuid.New()
	many(t, db, 1000, first, second)
	servers.Exec(t, db, `INSERT INTO api_clients (name, role) VALUES ('shop', 'app'), ('kiosk', 'app')`)
	servers.Exec(t, db, `UPDATE jobs SET idempotency_key = 'jwt:abc' || chr(10) || 'of a user' WHERE idempotency_key = '9'`)
	for _, c := range []struct {
		filter job.Filter
		want   string
	}{
		{job.Filter{}, `true`},
		{job.Filter{Client: "kiosk"}, `client = 'kiosk'`},
		{job.Filter{CampaignID: first, State: job.Succeeded}, `campaign_id = '` + first.String() + `' AND state = 'succeeded'`},
		{job.Filter{UserID: "user-7", Kind: job.KindPurchase}, `user_id = 'user-7' AND kind = 'purchase'`},
		{job.Filter{State: job.Failed}, `state = 'failed'`},
		{job.Filter{Client: "shop", Code: fault.SoldOut}, `client = 'shop' AND state = 'failed'`},
		{job.Filter{Code: fault.PositionTaken}, `false`},
		{job.Filter{Kind: job.KindCampaignPause, Client: "shop"}, `kind = 'campaign-pause'`},
		{job.Filter{Key: "50"}, `idempotency_key = '50'`},
		{job.Filter{Key: "50", Client: "kiosk"}, `idempotency_key = '50'`},
		{job.Filter{Key: "50", Client: "shop"}, `false`},
		{job.Filter{Key: "7", State: job.Succeeded}, `false`},
		{job.Filter{Key: "7", State: job.Queued}, `false`},
		{job.Filter{Key: "of a user"}, `false`},
		{job.Filter{Key: "of a user", UserID: "user-9"}, `user_id = 'user-9' AND idempotency_key LIKE '%of a user'`},
		{job.Filter{Reference: "order-7"}, `payload #>> '{payment,reference}' = 'order-7'`},
		{job.Filter{Reference: "order-507", UserID: "user-507", State: job.Failed}, `user_id = 'user-507' AND state = 'failed'`},
	} {
		rows, err := db.Query(t.Context(), `SELECT id FROM jobs WHERE `+c.want+` ORDER BY id DESC`)
		servers.NoError(t, err)
		want, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if got := all(t, db, c.filter); err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v: %d jobs, want %d, %v", c.filter, len(got), len(want), err)
		}
	}
}

// Open jobs are in messages, or led by a payment: see payments for the others.
func TestOpenJobsAreFoundWhereverTheyAreLed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	campaign := fixture.Campaign(t, db, fixture.Draft(4))
	many(t, db, 1000, uuid.New(), uuid.New())
	ref := fixture.Accept(t, db, fixture.PurchaseRequest(t, campaign, "mina", 0, 1))[0]
	if got := all(t, db, job.Filter{State: job.Queued}); !slices.Equal(got, []uuid.UUID{ref.ID}) {
		t.Errorf("queued: %v, want %v", got, ref.ID)
	}
	for _, filter := range []job.Filter{{State: job.AwaitingAction}, {State: job.Queued, Client: "nobody"}, {State: job.Queued, UserID: "otto"}, {State: job.Queued, Kind: job.KindDraw}} {
		if got := all(t, db, filter); len(got) > 0 {
			t.Errorf("%+v: %v", filter, got)
		}
	}
	fixture.Sell(t, db, campaign, 1)
	_, err := fixture.Seller(db).Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign)
	servers.NoError(t, err)
	if got := all(t, db, job.Filter{State: job.Queued}); len(got) > 0 {
		t.Errorf("when all are final: %v", got)
	}
}
