package webhook_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

// reads returns how many rows of a table do reads, in a transaction.
func (w *world) reads(table string, do func(tx pgx.Tx) error) (n int) {
	w.t.Helper()
	w.tx(func(tx pgx.Tx) error {
		// Also what the session has read before, as long as that was not summed up.
		const sql = `SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = $1`
		before := servers.Value[int](w.t, tx, sql, table)
		err := do(tx)
		n = servers.Value[int](w.t, tx, sql, table) - before
		return err
	})
	return n
}

func TestAClientHasAtMostItsNumberOfEndpointsHoweverManyItAsksForAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most, asked = 3, 8
	var mu sync.Mutex
	var wg sync.WaitGroup
	made := 0
	for range asked {
		wg.Go(func() {
			_, err := w.tried("shop", most)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if fault.CodeOf(err) != fault.StateConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != most || w.rows("webhook_endpoints") != most {
		t.Errorf("%d were made", made)
	}
	if _, err := w.tried("other", most); err != nil {
		t.Errorf("another client: %v", err)
	}
}

func TestAnEndpointIsChangedFieldByField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.hooks("shop")
	patch := func(c webhook.Change) (now webhook.Endpoint) {
		w.tx(func(tx pgx.Tx) (err error) { now, err = webhook.Patch(t.Context(), tx, e.ID, c); return err })
		return now
	}
	text, none, dash, url := "for the till", "", "-", "https://other.example"
	servers.Exec(t, w.db, `UPDATE webhook_endpoints SET failing_since = now(), failures = 3, paused_until = now() + interval '1 hour'`)
	for _, c := range []struct {
		change webhook.Change
		want   string
	}{
		{webhook.Change{Description: &text}, "for the till https://shop.example/hooks [*] 3 paused"},
		{webhook.Change{Events: []string{"hold.*", "purchase.failed"}}, "for the till https://shop.example/hooks [hold.* purchase.failed] 3 paused"},
		{webhook.Change{Description: &none}, "- https://shop.example/hooks [hold.* purchase.failed] 3 paused"},
		{webhook.Change{URL: &url}, "- https://other.example [hold.* purchase.failed] 0 of a new version"}, // a new URL is a new start
	} {
		now := patch(c.change)
		got := fmt.Sprint(*cmp.Or(now.Description, &dash), " ", now.URL, " ", now.Events, " ", now.Failures)
		if now.PausedUntil != nil {
			got += " paused"
		}
		if now.Version > e.Version {
			got += " of a new version"
		}
		if got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestASecretSignsUntilItsTimeIsOverAndFourAreTheMost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.hooks("shop")
	servers.Exec(t, w.db, `UPDATE webhook_secrets SET sealed = 'sealed'`)
	for _, step := range []struct {
		add     string
		overlap time.Duration
		after   time.Duration
		want    string
	}{
		{"second", time.Hour, 0, "[second sealed]"},
		{"third", 3 * time.Hour, 2 * time.Hour, "[third second]"},
		{"fourth", 0, 0, "[fourth]"},
		{"fifth", time.Hour, 0, "[fifth fourth]"},
		{"leaked", 2 * time.Hour, 0, "[leaked fifth fourth]"},
		{"safe", 0, 0, "[safe]"}, // nothing of before signs, however long it was to
		{"1", time.Hour, 0, "[1 safe]"},
		{"2", time.Hour, 0, "[2 1 safe]"},
		{"3", time.Hour, 0, "[3 2 1 safe]"},
		{"4", time.Hour, 0, "[4 3 2 1]"},
	} {
		w.clock.MoveOn(step.after)
		w.tx(func(tx pgx.Tx) error { return webhook.AddSecret(t.Context(), tx, e.ID, []byte(step.add), step.overlap) })
		list, err := webhook.Secrets(t.Context(), w.db, e.ID)
		var got []string
		for _, s := range list {
			got = append(got, string(s.Sealed))
		}
		if err != nil || fmt.Sprint(got) != step.want {
			t.Errorf("%s: %v, %v; want %s", step.add, got, err, step.want)
		}
	}
	if n := w.rows("webhook_secrets"); n != webhook.MaxSecrets {
		t.Errorf("%d are stored", n)
	}
}

func TestAnEventOfAnotherClientIsNotReplayedAndNotShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine, theirs := w.hooks("shop"), w.hooks("other")
	w.emit("shop", "hold.created", 1)
	delivery, _ := w.only(mine)
	if err := w.try(func(tx pgx.Tx) error { return webhook.Replay(t.Context(), tx, theirs, delivery.EventID) }); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
	w.replaySpan(theirs, 10, 0)
	for client, want := range map[string]fault.Code{"other": fault.NotFound, "shop": "", "": ""} {
		if e, err := webhook.GetEvent(t.Context(), w.db, client, delivery.EventID); fault.CodeOf(err) != want || err == nil && e.Type != "hold.created" {
			t.Errorf("%q: %+v, %v", client, e, err)
		}
	}
}

// Replays queue up: neither several at once nor one again and again send more in a second, and
// none puts off what waits.
func TestReplaysOfSpansShareOneRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.hooks("shop")
	const events = 40
	w.emit("shop", "hold.created", events)
	servers.Exec(t, w.db, `UPDATE webhook_deliveries SET state = 'delivered', next_at = NULL, finished_at = clock_timestamp()`)
	for _, limit := range []int{events / 2, events / 2, events, events} {
		w.replaySpan(e, limit, limit)
	}
	const gap = time.Second / webhook.ReplaysPerSecond
	var total, least time.Duration
	if err := w.db.QueryRow(t.Context(), `
		SELECT max(next_at) - min(next_at), min(gap) FROM (SELECT next_at, next_at - lag(next_at) OVER (ORDER BY next_at) AS gap FROM webhook_deliveries) d`).
		Scan(&total, &least); err != nil || total != (events-1)*gap || least != gap {
		t.Errorf("%d are due within %v, two of them within %v, %v", events, total, least, err)
	}
	last := servers.Value[uuid.UUID](t, w.db, `SELECT event_id FROM webhook_deliveries ORDER BY next_at DESC LIMIT 1`)
	w.replay(e, last)
	if due, err := webhook.DueEvents(t.Context(), w.db, e.ID, events); err != nil || !slices.ContainsFunc(due, func(d webhook.DueEvent) bool { return d.ID == last }) {
		t.Errorf("one event that is asked for alone: %v, %v", due, err)
	}
}

func TestNothingIsLeftOfWhatWasDeletedOrIsOld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e, kept := w.hooks("shop"), w.hooks("shop")
	left := func(want string) {
		t.Helper()
		if got := fmt.Sprintf("%d endpoints with %d secrets, %d events, %d deliveries", w.rows("webhook_endpoints"), w.rows("webhook_secrets"),
			w.rows("webhook_events"), w.rows("webhook_deliveries")); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
	w.emit("shop", "hold.created", 5)
	left("2 endpoints with 2 secrets, 5 events, 10 deliveries")
	w.delete(e)
	w.clock.MoveOn(2 * time.Minute)
	w.emit("shop", "hold.created", 1)
	w.sweepEndpoints()
	left("1 endpoints with 1 secrets, 6 events, 6 deliveries")
	w.clock.MoveOn(25 * time.Hour)
	w.emit("shop", "hold.created", 1)
	var from *time.Time
	for total := 0; total < 6; {
		n, to, err := webhook.DeleteEvents(t.Context(), w.db, 24*time.Hour, from, 4)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		total, from = total+n, to
	}
	left("1 endpoints with 1 secrets, 1 events, 1 deliveries")
	for disabled := range 2 {
		if c, err := webhook.CountWaiting(t.Context(), w.db); err != nil || c.Endpoints != 1-disabled || c.Disabled != disabled {
			t.Errorf("%+v, %v", c, err)
		}
		w.tx(func(tx pgx.Tx) error { _, err := webhook.Disable(t.Context(), tx, kept.ID, webhook.Gone); return err })
	}
}

// What waits for an endpoint that fails is counted apart, however it is paused; of one that is
// disabled nothing waits.
func TestTheBacklogOfEndpointsThatFailIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, client := range []string{"well", "fails", "failed first", "off"} {
		w.hooks(client)
		w.emit(client, "hold.created", 3)
	}
	for _, c := range []struct {
		client  string
		hours   int
		set     string
		least   time.Duration
		backlog int
		counted int // as disabled: lately, because of its answers
	}{
		{"off", 9, `, disabled_at = now(), disabled_reason = 'asked'`, 0, 0, 0},
		{"off", 9, `, disabled_at = now() - interval '25 hours', disabled_reason = 'failing'`, 0, 0, 0},
		{"off", 9, `, disabled_at = now() - interval '23 hours'`, 0, 0, 1},
		{"fails", 1, `, paused_until = now() + interval '1 hour'`, time.Hour, 3, 1},
		{"failed first", 2, ``, 2 * time.Hour, 6, 1},
	} {
		servers.Exec(t, w.db, `UPDATE webhook_endpoints SET failing_since = clock_timestamp() - $1 * interval '1 hour', failures = 1`+c.set+` WHERE client = $2`, c.hours, c.client)
		if got, err := webhook.CountWaiting(t.Context(), w.db); err != nil || got.Failing < c.least || got.Failing > c.least+time.Minute || got.Undelivered != c.backlog || got.Disabled != c.counted {
			t.Errorf("%s: %+v, %v; want %s, %d", c.client, got, err, c.least, c.backlog)
		}
	}
}

// DeleteEvents finds deliveries by their endpoints, so an endpoint outlives the transactions that have
// found it.
func TestADeliveryThatIsCommittedAfterItsEndpointWasDeletedGoesWithItsEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.hooks("shop")
	w.tx(func(tx pgx.Tx) error {
		if err := emitIn(tx, "shop", "hold.created", uuidv7.New()); err != nil {
			return err
		}
		w.delete(e)
		w.sweepEndpoints()
		return nil
	})
	if n := w.rows("webhook_deliveries"); n != 1 {
		t.Fatalf("%d deliveries: the test does not test", n)
	}
	w.clock.MoveOn(25 * time.Hour)
	if n, _, err := webhook.DeleteEvents(t.Context(), w.db, 24*time.Hour, nil, 4); n != 1 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
	fixture.Sound(t, w.db)
	w.sweepEndpoints()
	if n := w.rows("webhook_endpoints"); n != 0 {
		t.Errorf("%d endpoints are left", n)
	}
}

// An endpoint's deliveries of a time lie side by side.
func TestOldEventsAreDeletedWithOneLookAtEachEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const endpoints, events = 16, 100
	for range endpoints {
		w.hooks("shop")
	}
	for _, sql := range []string{`ANALYZE webhook_endpoints, webhook_deliveries, webhook_events`, `SELECT 1`} { // as small as they were, and as they are
		w.emit("shop", "hold.created", events)
		servers.Exec(t, w.db, sql)
		w.clock.MoveOn(25 * time.Hour)
		w.tx(func(tx pgx.Tx) error {
			looks := func() int {
				return servers.Value[int](t, tx, `SELECT idx_scan FROM pg_stat_xact_user_tables WHERE relname = 'webhook_deliveries'`)
			}
			before := looks()
			n, _, err := webhook.DeleteEvents(t.Context(), tx, 24*time.Hour, nil, events)
			if made := looks() - before; n != events || made > endpoints {
				t.Errorf("%d looks for %d events", made, n)
			}
			return err
		})
		if n := w.rows("webhook_deliveries"); n != 0 {
			t.Errorf("%d deliveries are left", n)
		}
	}
}

// Neither those that are younger, nor older ones that somebody has locked.
func TestOldEventsAreDeletedWithoutReadingWhatStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const events, others = 20, 1000
	w.hooks("shop")
	w.emit("shop", "hold.created", others)
	w.tx(func(locks pgx.Tx) error {
		servers.Exec(t, locks, `SELECT FROM webhook_events FOR UPDATE`)
		w.emit("shop", "hold.created", events)
		w.clock.MoveOn(25 * time.Hour)
		w.emit("shop", "hold.created", others)
		servers.Exec(t, w.db, `ANALYZE webhook_endpoints, webhook_deliveries, webhook_events`)
		read := w.reads("webhook_deliveries", func(tx pgx.Tx) error {
			n, _, err := webhook.DeleteEvents(t.Context(), tx, 24*time.Hour, nil, others)
			if n != events {
				t.Errorf("%d events were deleted", n)
			}
			return err
		})
		if read > others/2 {
			t.Errorf("%d deliveries were read for %d events", read, events)
		}
		return nil
	})
	if n := w.rows("webhook_deliveries"); n != 2*others {
		t.Errorf("%d deliveries are left", n)
	}
}

// A session plans the statements of a trigger once, for as many rows as its first statement
// has. A join of the rows before with those after is then a loop in a loop for ever.
func TestNoTriggerComparesEachRowOfABatchWithEach(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var triggers int
	var joins []string
	if err := db.QueryRow(t.Context(), `
		SELECT count(*), coalesce(array_agg(proname::text) FILTER (WHERE prosrc ~* '(join|,)\s+old_rows'), '{}') FROM pg_proc WHERE proname LIKE '%\_emit\_webhooks'`).
		Scan(&triggers, &joins); err != nil {
		t.Fatal(err)
	}
	if triggers < 5 || len(joins) > 0 {
		t.Errorf("of %d triggers %v join", triggers, joins)
	}
}

// Events are written in the transaction of a sale: what it reads does not grow with the endpoints
// of other clients, however stale the statistics are.
func TestEventsReadTheEndpointsOfTheirClientAndNoOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const events = 256
	w.hooks("shop")
	emitted := func() int {
		return w.reads("webhook_endpoints", func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `
				SELECT emit_webhooks(array_agg(c), array_agg('hold.created'::text), array_agg(gen_random_uuid()), array_agg(NULL::bigint), array_agg(NULL::uuid))
				FROM (SELECT CASE WHEN n % 2 = 0 THEN 'shop' ELSE 'none' END FROM generate_series(1, $1::int) n) AS e (c)`, events)
			return err
		})
	}
	alone := emitted()
	for _, others := range []string{`INSERT INTO webhook_endpoints (id, client, url, events)
			SELECT gen_random_uuid(), 'other-' || n, 'https://other.example/', '{*}' FROM generate_series(1, 10000) n`, `ANALYZE webhook_endpoints`} {
		servers.Exec(t, w.db, others)
		if read := emitted(); read > alone {
			t.Errorf("%d rows of endpoints are read, %d without those of others", read, alone)
		}
	}
	if sent := w.rows("webhook_deliveries"); sent != 3*events/2 {
		t.Errorf("%d deliveries", sent)
	}
}

// What failed is looked for when something is wrong: it is found among all that has arrived.
func TestTheFewThatFailedAreFoundWithoutReadingWhatHasArrived(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.hooks("shop")
	const events, failed = 3000, 2
	w.emit("shop", "hold.created", events)
	for _, sql := range []string{
		`UPDATE webhook_deliveries SET state = 'delivered', next_at = NULL, finished_at = clock_timestamp()`,
		`UPDATE webhook_deliveries SET state = 'failed' WHERE event_id IN (SELECT event_id FROM webhook_deliveries ORDER BY event_id LIMIT 2)`, // the oldest
		`ANALYZE webhook_deliveries, webhook_events`,
	} {
		servers.Exec(t, w.db, sql)
	}
	read := w.reads("webhook_deliveries", func(tx pgx.Tx) error {
		list, err := webhook.Deliveries(t.Context(), tx, e.ID, webhook.Filter{State: webhook.Failed}, uuid.Nil, 100)
		if len(list) != failed {
			t.Errorf("%d have failed", len(list))
		}
		return err
	})
	if read > 10*failed {
		t.Errorf("%d rows were read for %d", read, failed)
	}
}

// Every event of a client looks at all rows of its endpoints, also those that were deleted and
// not swept yet.
func TestEndpointsThatAreMadeAndDeletedAllTheTimeDoNotPileUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const most, tries = 2, 200
	var refused error
	for range tries {
		e, err := w.tried("shop", most)
		if refused = err; err != nil {
			break
		}
		w.delete(e)
	}
	if n := w.rows("webhook_endpoints"); fault.CodeOf(refused) != fault.StateConflict || n >= tries {
		t.Fatalf("there are %d rows: %v", n, refused)
	}
	w.clock.MoveOn(2 * time.Minute)
	w.sweepEndpoints()
	if _, err := w.tried("shop", most); err != nil {
		t.Errorf("after the sweep: %v", err)
	}
}
