package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

func inTx(t *testing.T, db *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	t.Helper()
	return postgres.InTx(context.WithoutCancel(t.Context()), db, do)
}

func create(t *testing.T, db *pgxpool.Pool, client string, most int) (e webhook.Endpoint, err error) {
	t.Helper()
	url := "https://shop.example/hooks"
	now := time.Now()
	wanted := webhook.Endpoint{ID: uuidv7.New(), Client: client, URL: url, Events: []string{"*"}, VerifiedAt: &now}
	err = inTx(t, db, func(tx pgx.Tx) (err error) {
		e, err = webhook.Create(t.Context(), tx, wanted, []byte("sealed"), most)
		return err
	})
	return e, err
}

func emit(t *testing.T, db *pgxpool.Pool, client string, n int) {
	t.Helper()
	events := make([]webhook.Event, n)
	for i := range events {
		events[i] = webhook.Event{Client: &client, Type: webhook.HoldCreated, Subject: uuidv7.New()}
	}
	if err := inTx(t, db, func(tx pgx.Tx) error {
		var b pgx.Batch
		webhook.QueueEvents(&b, events)
		return tx.SendBatch(t.Context(), &b).Close()
	}); err != nil {
		t.Fatal(err)
	}
}

func rows(t *testing.T, db *pgxpool.Pool, table string) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// rowsRead returns how many rows of a table the session of tx has read: also before tx, as long as
// that was not summed up.
func rowsRead(t *testing.T, tx pgx.Tx, table string) (n int) {
	t.Helper()
	if err := tx.QueryRow(t.Context(), `
		SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = $1`, table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAClientHasAtMostItsNumberOfEndpointsHoweverManyItAsksForAtOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	const most, asked = 3, 8
	var mu sync.Mutex
	var wg sync.WaitGroup
	made := 0
	for range asked {
		wg.Go(func() {
			_, err := create(t, db, "shop", most)
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
	if made != most || rows(t, db, "webhook_endpoints") != most {
		t.Errorf("%d were made", made)
	}
	if _, err := create(t, db, "other", most); err != nil {
		t.Errorf("another client: %v", err)
	}
}

func TestAnEndpointIsChangedFieldByField(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	e, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(c webhook.Change) (now webhook.Endpoint) {
		if err := inTx(t, db, func(tx pgx.Tx) (err error) { now, err = webhook.Patch(t.Context(), tx, e.ID, c); return err }); err != nil {
			t.Fatal(err)
		}
		return now
	}
	text, none, url := "for the till", "", "https://other.example"
	if now := patch(webhook.Change{Description: &text}); *now.Description != text || now.URL != e.URL || len(now.Events) != 1 {
		t.Errorf("got %+v", now)
	}
	if now := patch(webhook.Change{Events: []string{"hold.*", "purchase.failed"}}); fmt.Sprint(now.Events) != "[hold.* purchase.failed]" ||
		*now.Description != text {
		t.Errorf("got %+v", now)
	}
	servers.Exec(t, db, `UPDATE webhook_endpoints SET failing_since = now(), failures = 3, paused_until = now() + interval '1 hour'`)
	if now := patch(webhook.Change{Description: &none}); now.Description != nil || now.Failures != 3 || now.PausedUntil == nil {
		t.Errorf("got %+v", now)
	}
	if now := patch(webhook.Change{URL: &url}); now.URL != url || now.Failures != 0 || now.PausedUntil != nil || now.Version != e.Version+1 {
		t.Errorf("a new URL is no new start: %+v", now)
	}
}

func TestASecretSignsUntilItsTimeIsOverAndFourAreTheMost(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	e, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	secrets := func() (texts []string) {
		list, err := webhook.Secrets(t.Context(), db, e.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			texts = append(texts, string(s.Sealed))
		}
		return texts
	}
	add := func(text string, overlap time.Duration) {
		if err := inTx(t, db, func(tx pgx.Tx) error { return webhook.AddSecret(t.Context(), tx, e.ID, []byte(text), overlap) }); err != nil {
			t.Fatal(err)
		}
	}
	add("second", time.Hour)
	if got := fmt.Sprint(secrets()); got != "[second sealed]" {
		t.Errorf("got %s", got)
	}
	clock.MoveOn(2 * time.Hour)
	if got := fmt.Sprint(secrets()); got != "[second]" {
		t.Errorf("got %s", got)
	}
	add("third", 0)
	if got := fmt.Sprint(secrets()); got != "[third]" {
		t.Errorf("got %s", got)
	}
	add("fourth", time.Hour)
	add("leaked", 2*time.Hour)
	add("safe", 0)
	if got := fmt.Sprint(secrets()); got != "[safe]" { // nothing of before signs, however long it was to
		t.Errorf("got %s", got)
	}
	for i := range 6 {
		add(fmt.Sprint(i), time.Hour)
	}
	if got := fmt.Sprint(secrets()); got != "[5 4 3 2]" || rows(t, db, "webhook_secrets") != webhook.MostSecrets {
		t.Errorf("got %s", got)
	}
	all, err := webhook.SecretsAfter(t.Context(), db, uuid.Nil, 10)
	if err != nil || len(all) != webhook.MostSecrets {
		t.Fatal(all, err)
	}
	if done, err := webhook.Reseal(t.Context(), db, all[0].ID, []byte("another"), []byte("new")); done || err != nil {
		t.Errorf("what is sealed otherwise by now is replaced: %v", err)
	}
}

func TestAnEventOfAnotherClientIsNotReplayedAndNotShown(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	mine, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := create(t, db, "other", 16)
	if err != nil {
		t.Fatal(err)
	}
	emit(t, db, "shop", 2)
	list, err := webhook.Deliveries(t.Context(), db, mine.ID, webhook.Filter{}, uuid.Nil, 10)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	err = inTx(t, db, func(tx pgx.Tx) error { return webhook.Replay(t.Context(), tx, theirs, list[0].EventID) })
	if fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
	if err := inTx(t, db, func(tx pgx.Tx) error {
		n, _, err := webhook.ReplaySpan(t.Context(), tx, theirs, webhook.LastHour(), 10)
		if n != 0 {
			t.Errorf("%d were replayed", n)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := webhook.GetEvent(t.Context(), db, "other", list[0].EventID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
	for _, client := range []string{"shop", ""} {
		if e, err := webhook.GetEvent(t.Context(), db, client, list[0].EventID); err != nil || e.Type != webhook.HoldCreated {
			t.Errorf("%q: %+v, %v", client, e, err)
		}
	}
	first, err := webhook.StorePayloads(t.Context(), db, map[uuid.UUID]json.RawMessage{list[0].EventID: json.RawMessage(`{"n": 1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := webhook.StorePayloads(t.Context(), db, map[uuid.UUID]json.RawMessage{list[0].EventID: json.RawMessage(`{"n": 2}`)}); err != nil ||
		string(second[list[0].EventID]) != `{"n": 1}` || string(first[list[0].EventID]) != `{"n": 1}` {
		t.Errorf("%s, then %s, %v", first, second, err)
	}
}

// Replays queue up: neither several at once nor one again and again send more in a second, and
// none puts off what waits.
func TestReplaysOfSpansShareOneRate(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	e, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	const events = 40
	emit(t, db, "shop", events)
	servers.Exec(t, db, `UPDATE webhook_deliveries SET state = 'delivered', next_at = NULL, finished_at = clock_timestamp()`)
	replay := func(limit int) {
		if err := inTx(t, db, func(tx pgx.Tx) error {
			n, _, err := webhook.ReplaySpan(t.Context(), tx, e, webhook.LastHour(), limit)
			if n != limit {
				t.Errorf("%d replayed, want %d", n, limit)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{events / 2, events / 2, events, events} {
		replay(limit)
	}
	const gap = time.Second / webhook.ReplaysPerSecond
	var total, least time.Duration
	if err := db.QueryRow(t.Context(), `
		SELECT max(next_at) - min(next_at), min(gap) FROM (SELECT next_at, next_at - lag(next_at) OVER (ORDER BY next_at) AS gap FROM webhook_deliveries) d`).
		Scan(&total, &least); err != nil || total != (events-1)*gap || least != gap {
		t.Errorf("%d are due within %v, two of them within %v, %v", events, total, least, err)
	}
	last := servers.Value[uuid.UUID](t, db, `SELECT event_id FROM webhook_deliveries ORDER BY next_at DESC LIMIT 1`)
	if err := inTx(t, db, func(tx pgx.Tx) error { return webhook.Replay(t.Context(), tx, e, last) }); err != nil {
		t.Fatal(err)
	}
	if due, err := webhook.DueEvents(t.Context(), db, e.ID, events); err != nil || !slices.ContainsFunc(due, func(d webhook.DueEvent) bool { return d.ID == last }) {
		t.Errorf("one event that is asked for alone: %v, %v", due, err)
	}
}

func TestNothingIsLeftOfWhatWasDeletedOrIsOld(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	e, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	emit(t, db, "shop", 5)
	if n := rows(t, db, "webhook_deliveries"); n != 10 {
		t.Errorf("%d deliveries", n)
	}
	if err := inTx(t, db, func(tx pgx.Tx) error { return webhook.Delete(t.Context(), tx, e.ID) }); err != nil {
		t.Fatal(err)
	}
	clock.MoveOn(2 * time.Minute)
	emit(t, db, "shop", 1)
	for n := 1; n > 0; {
		if err := inTx(t, db, func(tx pgx.Tx) (err error) { n, err = webhook.DeleteEndpoints(t.Context(), tx, 3); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if endpoints, deliveries, secrets := rows(t, db, "webhook_endpoints"), rows(t, db, "webhook_deliveries"), rows(t, db, "webhook_secrets"); endpoints != 1 || deliveries != 6 || secrets != 1 {
		t.Errorf("%d endpoints, %d deliveries, %d secrets", endpoints, deliveries, secrets)
	}
	clock.MoveOn(25 * time.Hour)
	emit(t, db, "shop", 1)
	var from *time.Time
	for total := 0; total < 6; {
		n, to, err := webhook.DeleteEvents(t.Context(), db, 24*time.Hour, from, 4)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		total, from = total+n, to
	}
	if events, deliveries := rows(t, db, "webhook_events"), rows(t, db, "webhook_deliveries"); events != 1 || deliveries != 1 {
		t.Errorf("%d events, %d deliveries", events, deliveries)
	}
	if w, err := webhook.CountWaiting(t.Context(), db); err != nil || w.Endpoints != 1 || w.Disabled != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	if err := inTx(t, db, func(tx pgx.Tx) error { _, err := webhook.Disable(t.Context(), tx, kept.ID, webhook.Asked); return err }); err != nil {
		t.Fatal(err)
	}
	if w, err := webhook.CountWaiting(t.Context(), db); err != nil || w.Endpoints != 0 || w.Disabled != 1 {
		t.Errorf("%+v, %v", w, err)
	}
}

// What waits for an endpoint that fails is counted apart, however it is paused; of one that is
// disabled nothing waits.
func TestTheBacklogOfEndpointsThatFailIsCounted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, client := range []string{"well", "fails", "failed first", "off"} {
		if _, err := create(t, db, client, 10); err != nil {
			t.Fatal(err)
		}
		emit(t, db, client, 3)
	}
	want := func(least time.Duration, backlog int) {
		t.Helper()
		if w, err := webhook.CountWaiting(t.Context(), db); err != nil || w.Failing < least || w.Failing > least+time.Minute || w.Undelivered != backlog {
			t.Errorf("%+v, %v; want %s, %d", w, err, least, backlog)
		}
	}
	servers.Exec(t, db, `UPDATE webhook_endpoints SET failing_since = clock_timestamp() - interval '9 hours', failures = 1, disabled_at = now(), disabled_reason = 'failing' WHERE client = 'off'`)
	want(0, 0)
	servers.Exec(t, db, `UPDATE webhook_endpoints SET failing_since = clock_timestamp() - interval '1 hour', failures = 1, paused_until = now() + interval '1 hour' WHERE client = 'fails'`)
	want(time.Hour, 3)
	servers.Exec(t, db, `UPDATE webhook_endpoints SET failing_since = clock_timestamp() - interval '2 hours', failures = 1 WHERE client = 'failed first'`)
	want(2*time.Hour, 6)
}

// DeleteEvents finds deliveries by their endpoints, so an endpoint outlives the transactions that have
// found it.
func TestADeliveryThatIsCommittedAfterItsEndpointWasDeletedGoesWithItsEvent(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	e, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	sweep := func() {
		t.Helper()
		for n := 1; n > 0; {
			if err := inTx(t, db, func(tx pgx.Tx) (err error) { n, err = webhook.DeleteEndpoints(t.Context(), tx, 3); return err }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := inTx(t, db, func(tx pgx.Tx) error {
		var b pgx.Batch
		webhook.QueueEvents(&b, []webhook.Event{{Client: &e.Client, Type: webhook.HoldCreated, Subject: uuidv7.New()}})
		if err := tx.SendBatch(t.Context(), &b).Close(); err != nil {
			return err
		}
		if err := inTx(t, db, func(other pgx.Tx) error { return webhook.Delete(t.Context(), other, e.ID) }); err != nil {
			return err
		}
		sweep()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := rows(t, db, "webhook_deliveries"); n != 1 {
		t.Fatalf("%d deliveries: the test does not test", n)
	}
	clock.MoveOn(25 * time.Hour)
	if n, _, err := webhook.DeleteEvents(t.Context(), db, 24*time.Hour, nil, 4); n != 1 || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
	fixture.Sound(t, db)
	sweep()
	if n := rows(t, db, "webhook_endpoints"); n != 0 {
		t.Errorf("%d endpoints are left", n)
	}
}

// An endpoint's deliveries of a time lie side by side.
func TestOldEventsAreDeletedWithOneLookAtEachEndpoint(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	const endpoints, events = 16, 100
	for range endpoints {
		if _, err := create(t, db, "shop", endpoints); err != nil {
			t.Fatal(err)
		}
	}
	for _, sql := range []string{`ANALYZE webhook_endpoints, webhook_deliveries, webhook_events`, `SELECT 1`} { // as small as they were, and as they are
		emit(t, db, "shop", events)
		servers.Exec(t, db, sql)
		clock.MoveOn(25 * time.Hour)
		if err := inTx(t, db, func(tx pgx.Tx) error {
			looks := func() int {
				return servers.Value[int](t, tx, `SELECT idx_scan FROM pg_stat_xact_user_tables WHERE relname = 'webhook_deliveries'`)
			}
			before := looks()
			n, _, err := webhook.DeleteEvents(t.Context(), tx, 24*time.Hour, nil, events)
			if made := looks() - before; n != events || made > endpoints {
				t.Errorf("%d looks for %d events", made, n)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if n := rows(t, db, "webhook_deliveries"); n != 0 {
			t.Errorf("%d deliveries are left", n)
		}
	}
}

// Neither those that are younger, nor older ones that somebody has locked.
func TestOldEventsAreDeletedWithoutReadingWhatStays(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	const events, others = 20, 1000
	if _, err := create(t, db, "shop", 1); err != nil {
		t.Fatal(err)
	}
	emit(t, db, "shop", others)
	if err := inTx(t, db, func(locks pgx.Tx) error {
		servers.Exec(t, locks, `SELECT FROM webhook_events FOR UPDATE`)
		emit(t, db, "shop", events)
		clock.MoveOn(25 * time.Hour)
		emit(t, db, "shop", others)
		servers.Exec(t, db, `ANALYZE webhook_endpoints, webhook_deliveries, webhook_events`)
		return inTx(t, db, func(tx pgx.Tx) error {
			before := rowsRead(t, tx, "webhook_deliveries")
			n, _, err := webhook.DeleteEvents(t.Context(), tx, 24*time.Hour, nil, others)
			if read := rowsRead(t, tx, "webhook_deliveries") - before; n != events || read > others/2 {
				t.Errorf("%d deliveries were read for %d events", read, n)
			}
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	if n := rows(t, db, "webhook_deliveries"); n != 2*others {
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
	db := servers.DB(t)
	const events = 256
	if _, err := create(t, db, "shop", 1); err != nil {
		t.Fatal(err)
	}
	emitted := func() (read int) {
		if err := inTx(t, db, func(tx pgx.Tx) error {
			before := rowsRead(t, tx, "webhook_endpoints")
			_, err := tx.Exec(t.Context(), `
				SELECT emit_webhooks(array_agg(c), array_agg('hold.created'::text), array_agg(gen_random_uuid()), array_agg(NULL::bigint), array_agg(NULL::uuid))
				FROM (SELECT CASE WHEN n % 2 = 0 THEN 'shop' ELSE 'none' END FROM generate_series(1, $1::int) n) AS e (c)`, events)
			read = rowsRead(t, tx, "webhook_endpoints") - before
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return read
	}
	alone := emitted()
	for _, others := range []string{`INSERT INTO webhook_endpoints (id, client, url, events)
			SELECT gen_random_uuid(), 'other-' || n, 'https://other.example/', '{*}' FROM generate_series(1, 10000) n`, `ANALYZE webhook_endpoints`} {
		servers.Exec(t, db, others)
		if read := emitted(); read > alone {
			t.Errorf("%d rows of endpoints are read, %d without those of others", read, alone)
		}
	}
	if sent := rows(t, db, "webhook_deliveries"); sent != 3*events/2 {
		t.Errorf("%d deliveries", sent)
	}
}

// What failed is looked for when something is wrong: it is found among all that has arrived.
func TestTheFewThatFailedAreFoundWithoutReadingWhatHasArrived(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	e, err := create(t, db, "shop", 16)
	if err != nil {
		t.Fatal(err)
	}
	const events, failed = 3000, 2
	emit(t, db, "shop", events)
	for _, sql := range []string{
		`UPDATE webhook_deliveries SET state = 'delivered', next_at = NULL, finished_at = clock_timestamp()`,
		`UPDATE webhook_deliveries SET state = 'failed' WHERE event_id IN (SELECT event_id FROM webhook_deliveries ORDER BY event_id LIMIT 2)`, // the oldest
		`ANALYZE webhook_deliveries, webhook_events`,
	} {
		servers.Exec(t, db, sql)
	}
	if err := inTx(t, db, func(tx pgx.Tx) error {
		before := rowsRead(t, tx, "webhook_deliveries")
		list, err := webhook.Deliveries(t.Context(), tx, e.ID, webhook.Filter{State: webhook.Failed}, uuid.Nil, 100)
		if n := rowsRead(t, tx, "webhook_deliveries") - before; n > 10*failed || len(list) != failed {
			t.Errorf("%d rows were read for %d", n, len(list))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// Every event of a client looks at all rows of its endpoints, also those that were deleted and
// not swept yet.
func TestEndpointsThatAreMadeAndDeletedAllTheTimeDoNotPileUp(t *testing.T) {
	t.Parallel()
	db, clock := servers.DBWithClock(t)
	const most, tries = 2, 200
	var refused error
	for range tries {
		e, err := create(t, db, "shop", most)
		if refused = err; err != nil {
			break
		}
		if err := inTx(t, db, func(tx pgx.Tx) error { return webhook.Delete(t.Context(), tx, e.ID) }); err != nil {
			t.Fatal(err)
		}
	}
	if n := rows(t, db, "webhook_endpoints"); fault.CodeOf(refused) != fault.StateConflict || n >= tries {
		t.Fatalf("there are %d rows: %v", n, refused)
	}
	clock.MoveOn(2 * time.Minute)
	if err := inTx(t, db, func(tx pgx.Tx) error { _, err := webhook.DeleteEndpoints(t.Context(), tx, tries); return err }); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t, db, "shop", most); err != nil {
		t.Errorf("after the sweep: %v", err)
	}
}
