package webhook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

// A round has up to 512 events: when each is compared with each, that is most of what a delivery
// costs.
func TestARoundLooksAtEachOfItsEventsAFewTimes(t *testing.T) {
	t.Parallel()
	const events, few = 200, 12
	w := newWorld(t)
	e, db := w.hooks("shop"), w.db
	w.emit("shop", "hold.created", 2*events) // half of them wait for the next round

	steps := make(map[string]int) // rows that the steps of a statement have made or left out, by its query
	config := db.Config().ConnConfig
	for name, value := range map[string]string{"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
		"auto_explain.log_timing": "off", "auto_explain.log_format": "json", "plan_cache_mode": "force_generic_plan", "client_min_messages": "log"} {
		config.RuntimeParams[name] = value
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if _, plan, ok := strings.Cut(n.Message, "plan:\n"); ok {
			var explained servers.Explained
			if err := json.Unmarshal([]byte(plan), &explained); err != nil {
				t.Errorf("%v: %s", err, plan)
			}
			steps[explained.Query] += explained.Steps()
		}
	}
	config.ValidateConnect = nil // it asks the server who it is
	conn, err := pgx.ConnectConfig(t.Context(), config)
	servers.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	servers.NoError(t, db.Config().AfterConnect(t.Context(), conn))

	due, err := webhook.DueEvents(t.Context(), conn, e.ID, events)
	if err != nil || len(due) != events {
		t.Fatalf("%d are due, %v", len(due), err)
	}
	payloads := make(map[uuid.UUID]json.RawMessage, events)
	round := webhook.Round{Arrived: true}
	for _, d := range due {
		payloads[d.ID] = json.RawMessage(`{}`)
		round.Sent = append(round.Sent, webhook.AttemptResult{Attempt: webhook.Attempt{EventID: d.ID, At: time.Now()}, Due: d.Due})
	}
	if stored, err := webhook.StorePayloads(t.Context(), conn, payloads); err != nil || len(stored) != events {
		t.Fatalf("%d payloads are stored, %v", len(stored), err)
	}
	if err := postgres.InTx(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := webhook.Record(t.Context(), tx, e, round, time.Hour)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if left := w.rows(`webhook_deliveries WHERE state = 'pending'`); left != events {
		t.Errorf("%d are pending", left)
	}
	const statements = 5 // what is due, payloads, the endpoint, attempts, deliveries
	if len(steps) != statements {
		t.Errorf("%d statements", len(steps))
	}
	for query, n := range steps {
		if n > few*events {
			t.Errorf("%d rows for %d events: %s", n, events, query)
		}
	}
}

// An event goes to two endpoints, whose workers render it at once: its message is the one that
// was stored first, also for the worker that has waited for it.
func TestOfTwoMessagesThatAreStoredAtOnceBothSendersGetTheFirst(t *testing.T) {
	t.Parallel()
	const events = 20
	w := newWorld(t)
	due, db := w.due(events), w.db
	first, second := make(map[uuid.UUID]json.RawMessage), make(map[uuid.UUID]json.RawMessage)
	for _, d := range due {
		first[d.ID], second[d.ID] = json.RawMessage(`{"n":1}`), json.RawMessage(`{"n":2}`)
	}
	delete(first, due[0].ID) // the second alone has this one
	type answer struct {
		stored map[uuid.UUID]json.RawMessage
		err    error
	}
	waited := make(chan answer, 1)
	w.tx(func(tx pgx.Tx) error {
		stored, err := webhook.StorePayloads(t.Context(), tx, first)
		if err != nil || len(stored) != events-1 {
			t.Errorf("%d are stored, %v", len(stored), err)
		}
		go func() {
			stored, err := webhook.StorePayloads(t.Context(), db, second)
			waited <- answer{stored, err}
		}()
		servers.AwaitBlocked(t, db, 1)
		return err
	})
	got := <-waited
	if got.err != nil || len(got.stored) != events {
		t.Fatalf("%d are stored, %v", len(got.stored), got.err)
	}
	third := make(map[uuid.UUID]json.RawMessage)
	for id := range second {
		third[id] = json.RawMessage(`{"n":3}`)
	}
	later, err := webhook.StorePayloads(t.Context(), db, third)
	servers.NoError(t, err)
	for id, message := range got.stored {
		want := `{"n":1}`
		if id == due[0].ID {
			want = `{"n":2}`
		}
		if kept, err := webhook.GetEvent(t.Context(), db, "shop", id); err != nil || string(message) != want || string(later[id]) != want || string(kept.Payload) != want {
			t.Errorf("sent %s, later %s, stored %s, %v; want %s", message, later[id], kept.Payload, err, want)
		}
	}
}

// Without an order, two workers that store messages of the same events would wait for each other.
func TestMessagesAreStoredInTheOrderOfTheirEvents(t *testing.T) {
	t.Parallel()
	const events = 200
	w := newWorld(t)
	due, db := w.due(events), w.db
	messages := make(map[uuid.UUID]json.RawMessage)
	for _, d := range due {
		messages[d.ID] = json.RawMessage(`{}`)
	}
	stored := make(chan error, 1)
	w.tx(func(tx pgx.Tx) error {
		servers.Exec(t, tx, `SELECT FROM webhook_events WHERE id = (SELECT id FROM webhook_events ORDER BY id LIMIT 1) FOR UPDATE`)
		go func() {
			_, err := webhook.StorePayloads(t.Context(), db, messages)
			stored <- err
		}()
		servers.AwaitBlocked(t, db, 1)
		if free := servers.Value[int](t, tx, `SELECT count(*) FROM (SELECT FROM webhook_events FOR UPDATE SKIP LOCKED) e`); free != events {
			t.Errorf("%d of %d are free while the first is waited for", free, events)
		}
		return nil
	})
	if err := <-stored; err != nil {
		t.Error(err)
	}
}

// due are n events that a new endpoint is to hear of, without their messages.
func (w *world) due(n int) (due []webhook.DueEvent) {
	w.t.Helper()
	e := w.hooks("shop")
	w.emit("shop", "hold.created", n)
	due, err := webhook.DueEvents(w.t.Context(), w.db, e.ID, n)
	if err != nil || len(due) != n {
		w.t.Fatalf("%d are due, %v", len(due), err)
	}
	return due
}
