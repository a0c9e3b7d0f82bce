package inventory_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

var at = fixture.At

// campaignOn has a test run in parallel, with a campaign in a database of its own.
func campaignOn(t *testing.T, baseLength int) (db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	t.Parallel()
	db = servers.DB(t)
	return db, fixture.Campaign(t, db, fixture.Draft(baseLength))
}

// filled is campaignOn with positions only; they are all free, by rank.
func filled(t *testing.T, baseLength int) (db *pgxpool.Pool, id uuid.UUID, free []inventory.FreePosition) {
	t.Helper()
	t.Parallel()
	db = servers.DB(t)
	id = fill(t, db, baseLength)
	return db, id, ranked(t, db, id, 0)
}

// expectCode fails the test unless err has the code; empty is no error.
func expectCode(t *testing.T, what string, err error, want fault.Code) {
	t.Helper()
	if got := fault.CodeOf(err); got != want {
		t.Errorf("%s: %v; want %q", what, err, want)
	}
}

// expectTaken fails the test unless err names exactly the given positions, by their index in the request.
func expectTaken(t *testing.T, what string, err error, pointers ...string) {
	t.Helper()
	expectCode(t, what, err, fault.PositionTaken)
	var named []string
	for _, f := range fault.From(err).Fields {
		named = append(named, f.Pointer)
	}
	if !slices.Equal(named, pointers) {
		t.Errorf("%s: %v are named as taken, want %v", what, named, pointers)
	}
}

// problem returns why a job failed.
func problem(j job.Job) error {
	if j.Problem == nil {
		return nil
	}
	return j.Problem.Err()
}

func placesOf(h inventory.Hold) (places []shape.Position) {
	for _, p := range h.Positions {
		places = append(places, p.Position)
	}
	return places
}

func expectCounts(t *testing.T, db *pgxpool.Pool, id uuid.UUID, reserved, sold int) {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	if err != nil || c.Counts.Reserved != reserved || c.Counts.Sold != sold {
		t.Errorf("%d reserved and %d sold, want %d and %d (%v)", c.Counts.Reserved, c.Counts.Sold, reserved, sold, err)
	}
}

// extendAt extends a hold at a service.
func extendAt(t *testing.T, service *inventory.Holds, id uuid.UUID, ttl time.Duration) (h inventory.Hold, err error) {
	t.Helper()
	done, err := service.Extend(t.Context(), inventory.HoldRequest{Job: extendRequest(t, service, id), TTL: ttl}, id)
	if err := fixture.Refused(done, err); err != nil {
		return h, err
	}
	return h, json.Unmarshal(done.Job.Result, &h)
}

func extendRequest(t *testing.T, service *inventory.Holds, id uuid.UUID) job.Request {
	t.Helper()
	key := uuidv7.New()
	return job.Request{ID: key, Client: "test", Key: key.String(), Kind: job.KindHoldExtend, Retention: time.Hour, CampaignID: campaignOf(t, service.DB(), id)}
}

// campaignOf returns the campaign of a hold, or none.
func campaignOf(t *testing.T, db postgres.DB, hold uuid.UUID) uuid.UUID {
	t.Helper()
	h, err := inventory.GetHold(t.Context(), db, access.Everything(), hold)
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		t.Fatal(err)
	}
	return h.CampaignID
}

// releaseAt releases a hold at a service.
func releaseAt(t *testing.T, service *inventory.Holds, id uuid.UUID) (released bool, err error) {
	t.Helper()
	return service.Release(t.Context(), campaignOf(t, service.DB(), id), id)
}

// jobs counts the jobs of a request's key.
func jobs(t *testing.T, db *pgxpool.Pool, request inventory.HoldRequest) int {
	t.Helper()
	return servers.Value[int](t, db, `SELECT count(*) FROM jobs WHERE client = $1 AND idempotency_key = $2`, request.Job.Client, request.Job.Key)
}

// open is a lock that everybody gets at once.
func open(context.Context, ...string) (func(), error) { return func() {}, nil }

// together sends requests all at once; requests[i] goes to services[i % n].
func together(t *testing.T, services []*inventory.Holds, requests []inventory.HoldRequest) (made []inventory.Hold, refused []error) {
	t.Helper()
	made, refused = make([]inventory.Hold, len(requests)), make([]error, len(requests))
	var crowd sync.WaitGroup
	start := make(chan struct{})
	for i := range requests {
		crowd.Go(func() {
			<-start
			made[i], refused[i] = fixture.TryHold(t, services[i%len(services)], requests[i])
		})
	}
	close(start)
	crowd.Wait()
	return made, refused
}

// queueing has requests wait for one transaction, each behind those that are queued before it, until
// they are let go: another one waits for the campaign.
func queueing(t *testing.T, db *pgxpool.Pool, service *inventory.Holds, id uuid.UUID) (queue func(do func()), letGo func()) {
	t.Helper()
	service.SetRowWait(servers.Patience, servers.Patience)
	unlock := fixture.LockCampaign(t, db, id)
	var all sync.WaitGroup
	all.Go(func() { _, _ = service.Create(t.Context(), fixture.HoldRequest(id, "outside", at(99, 99))) })
	servers.AwaitBlocked(t, db, 1)
	queue = func(do func()) {
		before := service.Pending(id)
		all.Go(do)
		servers.Eventually(t, "it waits for the transaction", func() bool { return service.Pending(id) > before })
	}
	return queue, func() { unlock(); all.Wait() }
}

// inOneBatch sends requests that end up in one transaction, in no particular order.
func inOneBatch(t *testing.T, db *pgxpool.Pool, service *inventory.Holds, id uuid.UUID, requests []inventory.HoldRequest) (made []inventory.Hold, refused []error) {
	t.Helper()
	_, letGo := queueing(t, db, service, id)
	var crowd sync.WaitGroup
	crowd.Go(func() { made, refused = together(t, []*inventory.Holds{service}, requests) })
	servers.Eventually(t, "all requests wait for their transaction", func() bool { return service.Pending(id) == len(requests) })
	letGo()
	crowd.Wait()
	return made, refused
}

// stopped is a clock that stands still: what is remembered stays remembered.
func stopped() func() time.Time {
	now := time.Now()
	return func() time.Time { return now }
}

// counting counts how many of requests were granted; the others must have the code of a loser.
func counting(t *testing.T, what string, refused []error, code fault.Code) (granted int) {
	t.Helper()
	for _, err := range refused {
		if err == nil {
			granted++
		} else {
			expectCode(t, what, err, code)
		}
	}
	return granted
}

// fill lays out positions, layer k at the price 100 · k, and returns their campaign.
func fill(t *testing.T, db *pgxpool.Pool, baseLength int) uuid.UUID {
	t.Helper()
	id := uuid.New()
	prices := make([]money.Amount, baseLength)
	for i := range prices {
		prices[i] = money.Amount(100 * (i + 1))
	}
	if err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		servers.Exec(t, tx, `INSERT INTO campaigns (id, name, base_length, currency, policies, positions_total) VALUES ($1, 'Board', $2, 'JPY', '{}', $2::int * ($2 + 1) / 2)`, id, max(baseLength, 3))
		servers.Exec(t, tx, `INSERT INTO layers SELECT $1, n, 100 * n, n, n * (n - 1) / 2 + 1 FROM generate_series(1, $2::int) AS n`, id, baseLength)
		return inventory.Fill(t.Context(), tx, id, inventory.Plan{Shape: fixture.Triangle(baseLength), Prices: prices})
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

// begin begins a transaction that is rolled back at the end of the test at the latest.
func begin(t *testing.T, db *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// needs is so many positions of a layer; layer 0 is anywhere.
func needs(id uuid.UUID, layer, count int) inventory.Need {
	return inventory.Need{Pool: inventory.Pool{CampaignID: id, Layer: layer}, Count: count}
}

func find(t *testing.T, tx pgx.Tx, needs ...inventory.Need) []inventory.FreePosition {
	t.Helper()
	free, err := inventory.FindFree(t.Context(), tx, needs)
	servers.NoError(t, err)
	return free
}

// peek is find without keeping the locks.
func peek(t *testing.T, db *pgxpool.Pool, needs ...inventory.Need) (free []inventory.FreePosition) {
	t.Helper()
	tx := begin(t, db)
	free = find(t, tx, needs...)
	servers.NoError(t, tx.Rollback(t.Context()))
	return free
}

// change sends what queue queues, as one transaction, and tells whether it was
// done: otherwise one of the rows was not what it should be, and nothing is done.
func change(t *testing.T, db postgres.Beginner, queue func(b *pgx.Batch)) (done bool) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		var b pgx.Batch
		queue(&b)
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if err != nil && !errors.Is(err, postgres.ErrRows) {
		t.Fatal(err)
	}
	return err == nil
}

func pointers(free []inventory.FreePosition) []*inventory.FreePosition {
	picked := make([]*inventory.FreePosition, len(free))
	for i := range free {
		picked[i] = &free[i]
	}
	return picked
}

// newHold is a hold of free positions by the user "holder" that ends so much from now.
func newHold(in time.Duration, free ...inventory.FreePosition) inventory.NewHold {
	h := inventory.NewHold{Picked: pointers(free), Hold: inventory.Hold{ID: uuid.New(), CampaignID: free[0].CampaignID, UserID: "holder", EndsBy: time.Now().Add(24 * time.Hour),
		State: inventory.HoldActive, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(in).Truncate(time.Microsecond)}}
	for _, f := range free {
		h.Positions = append(h.Positions, shape.Item{Seat: fixture.OfTriangle(f.Position), Price: f.Price})
	}
	return h
}

// set puts positions into a state by hand, for a purchase or a hold where the state has one.
func set(t *testing.T, db postgres.DB, state inventory.State, purchase uuid.UUID, free ...inventory.FreePosition) {
	t.Helper()
	for _, f := range free {
		servers.Exec(t, db, `
			UPDATE positions
			SET state = $4::text, version = version + 1, user_id = CASE WHEN $4 NOT IN ('available', 'blocked') THEN 'somebody' END,
			    expires_at = CASE WHEN $4 IN ('held', 'reserved') THEN now() + interval '10 hours' END,
			    hold_id = CASE WHEN $4 = 'held' THEN $5::uuid END,
			    purchase_id = CASE WHEN $4 IN ('reserved', 'sold') THEN $5::uuid END,
			    sold_at = CASE WHEN $4 = 'sold' THEN now() END
			WHERE campaign_id = $1 AND layer = $2 AND col = $3`, f.CampaignID, f.Layer, f.Column, string(state), purchase)
	}
}

func all(t *testing.T, db postgres.DB, id uuid.UUID) []inventory.Position {
	t.Helper()
	positions, err := inventory.All(t.Context(), db, id)
	servers.NoError(t, err)
	return positions
}

// ranked returns what is free by rank, in a layer or (0) anywhere, as the rows tell it,
// without the search under test.
func ranked(t *testing.T, db *pgxpool.Pool, id uuid.UUID, layer int) (free []inventory.FreePosition) {
	t.Helper()
	rows, err := db.Query(t.Context(), `SELECT layer, col, rank, price, version FROM positions WHERE campaign_id = $1 AND state = 'available' AND $2 IN (0, layer) ORDER BY rank`, id, layer)
	servers.NoError(t, err)
	f := inventory.FreePosition{PositionID: inventory.PositionID{CampaignID: id}}
	if _, err := pgx.ForEachRow(rows, []any{&f.Layer, &f.Column, &f.Rank, &f.Price, &f.Version}, func() error { free = append(free, f); return nil }); err != nil {
		t.Fatal(err)
	}
	return free
}

func byRank(a, b inventory.FreePosition) int { return a.Rank - b.Rank }

// kept makes a hold of free positions.
func kept(t *testing.T, db *pgxpool.Pool, in time.Duration, free ...inventory.FreePosition) inventory.Hold {
	t.Helper()
	made := newHold(in, free...)
	if !change(t, db, func(b *pgx.Batch) {
		if err := inventory.QueueHold(b, []inventory.NewHold{made}, inventory.HoldQuota{Max: 1000 * time.Hour}); err != nil {
			t.Error(err)
		}
	}) {
		t.Fatalf("not held: %+v", free)
	}
	return made.Hold
}
