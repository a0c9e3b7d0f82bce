package webhook_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// unhurried is a timeout that no machine is too slow for.
const unhurried = time.Minute

// message is what a receiver has got.
type message struct {
	id     string
	body   string
	header http.Header
}

// receiver is an app that is told. It answers what answer says: 200, when that is nil.
type receiver struct {
	url    string
	answer func(w http.ResponseWriter, m message)

	mu   sync.Mutex
	got  []message
	open int // requests at this moment
	most int // of them at a time
}

func newReceiver(t *testing.T, answer func(w http.ResponseWriter, m message)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	m := message{id: request.Header.Get("webhook-id"), body: string(body), header: request.Header}
	r.mu.Lock()
	r.got = append(r.got, m)
	r.open++
	r.most = max(r.most, r.open)
	answer := r.answer
	r.mu.Unlock()
	defer func() { // also when it hangs up
		r.mu.Lock()
		defer r.mu.Unlock()
		r.open--
	}()
	if answer != nil {
		answer(w, m)
	}
}

func (r *receiver) messages() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]message(nil), r.got...)
}

func (r *receiver) then(answer func(w http.ResponseWriter, m message)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// status answers with a status.
func status(code int) func(http.ResponseWriter, message) {
	return func(w http.ResponseWriter, _ message) { w.WriteHeader(code) }
}

// counting renders something else each time.
type counting struct {
	mu sync.Mutex
	n  int
}

func (c *counting) Render(_ context.Context, events []webhook.Event) (map[uuid.UUID]json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	documents := make(map[uuid.UUID]json.RawMessage, len(events))
	for _, e := range events {
		c.n++
		documents[e.ID] = json.RawMessage(fmt.Sprintf(`{"id":%q,"rendered":%d}`, e.Subject, c.n))
	}
	return documents, nil
}

// world is a database with endpoints, and its clock.
type world struct {
	t        *testing.T
	db       *pgxpool.Pool
	clock    *servers.Clock
	renderer *counting
	turn     time.Duration // of a deliverer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db, clock := servers.DBWithClock(t)
	return &world{t: t, db: db, clock: clock, renderer: new(counting), turn: unhurried}
}

func (w *world) deliverer(concurrency int, timeout time.Duration) *webhook.Deliverer {
	w.t.Helper()
	guard, err := sender.NewGuard("127.0.0.0/8")
	servers.NoError(w.t, err)
	sender := sender.NewSender(guard, timeout, sender.Options{})
	w.t.Cleanup(sender.Close)
	return webhook.NewDeliverer(w.db, fixture.Key(w.t), sender, w.renderer,
		webhook.DelivererSettings{Concurrency: concurrency, Timeout: timeout, GiveUpAfter: 72 * time.Hour, RunTime: w.turn}, servers.Logger(w.t), prometheus.NewRegistry())
}

// try runs do in a transaction; tx wants no error.
func (w *world) try(do func(tx pgx.Tx) error) error {
	return postgres.InTx(context.WithoutCancel(w.t.Context()), w.db, do)
}

func (w *world) tx(do func(tx pgx.Tx) error) {
	w.t.Helper()
	servers.NoError(w.t, w.try(do))
}

// rows counts rows of a table, or of a table with a condition.
func (w *world) rows(table string) int {
	w.t.Helper()
	return servers.Value[int](w.t, w.db, `SELECT count(*) FROM `+table)
}

// hooksURL is an address to which nothing is sent.
const hooksURL = "https://shop.example/hooks"

// create makes an endpoint of a client that has fewer than most; without more, it is the shop's, for all events.
func (w *world) create(tx pgx.Tx, draft webhook.Endpoint, most int) (made webhook.Endpoint, secret string, err error) {
	draft.ID, secret = uuidv7.New(), sender.NewSecret()
	draft.Client, draft.URL = cmp.Or(draft.Client, "shop"), cmp.Or(draft.URL, hooksURL)
	if len(draft.Events) == 0 {
		draft.Events = []string{"*"}
	}
	made, err = webhook.Create(w.t.Context(), tx, draft, webhook.Seal(fixture.Key(w.t), draft.ID, secret), most)
	return made, secret, err
}

// endpoint makes a verified endpoint and returns it with its secret.
func (w *world) endpoint(client, url string, events ...string) (made webhook.Endpoint, secret string) {
	w.t.Helper()
	now := time.Now()
	w.tx(func(tx pgx.Tx) (err error) {
		made, secret, err = w.create(tx, webhook.Endpoint{Client: client, URL: url, Events: events, VerifiedAt: &now}, 16)
		return err
	})
	return made, secret
}

// hooks makes an endpoint for all events of a client, to which nothing is sent.
func (w *world) hooks(client string) webhook.Endpoint {
	w.t.Helper()
	e, _ := w.endpoint(client, hooksURL)
	return e
}

// tried creates an endpoint, if its client has fewer than most.
func (w *world) tried(client string, most int) (e webhook.Endpoint, err error) {
	err = w.try(func(tx pgx.Tx) (err error) {
		e, _, err = w.create(tx, webhook.Endpoint{Client: client}, most)
		return err
	})
	return e, err
}

// replaySpan sends again what the last hour had, and wants so many events.
func (w *world) replaySpan(e webhook.Endpoint, limit, want int) {
	w.t.Helper()
	w.tx(func(tx pgx.Tx) error {
		n, _, err := webhook.ReplaySpan(w.t.Context(), tx, e, webhook.LastHour(), limit)
		if n != want {
			w.t.Errorf("%d replayed, want %d", n, want)
		}
		return err
	})
}

// sweepEndpoints deletes what is left of endpoints that were deleted.
func (w *world) sweepEndpoints() {
	w.t.Helper()
	for n, err := 1, error(nil); n > 0; {
		if n, err = webhook.DeleteEndpoints(w.t.Context(), w.db, 3); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) delete(e webhook.Endpoint) {
	w.t.Helper()
	w.tx(func(tx pgx.Tx) error { return webhook.Delete(w.t.Context(), tx, e.ID) })
}

// emit writes n events of a client.
func (w *world) emit(client, kind string, n int) (subjects []uuid.UUID) {
	w.t.Helper()
	for range n {
		subjects = append(subjects, uuidv7.New())
	}
	w.tx(func(tx pgx.Tx) error { return emitIn(tx, client, kind, subjects...) })
	return subjects
}

func emitIn(tx pgx.Tx, client, kind string, subjects ...uuid.UUID) error {
	_, err := tx.Exec(context.Background(), `
		SELECT emit_webhooks(array_agg(nullif($1::text, '')), array_agg($2::text), array_agg(id), array_agg(NULL::bigint), array_agg(NULL::uuid))
		FROM unnest($3::uuid[]) AS id`, client, kind, subjects)
	return err
}

// outcome is what a turn has come to.
type outcome struct {
	Claimed           bool
	Delivered, Failed int  // attempts
	More              bool // something is due, and can be sent at once
	Slow, Disabled    bool
}

func (w *world) run(d *webhook.Deliverer, e webhook.Endpoint) (o outcome) {
	w.t.Helper()
	attempts := func() (arrived, failed int) {
		if err := w.db.QueryRow(w.t.Context(), `
			SELECT count(*) FILTER (WHERE error IS NULL), count(*) FILTER (WHERE error IS NOT NULL) FROM webhook_attempts WHERE endpoint_id = $1`, e.ID).Scan(&arrived, &failed); err != nil {
			w.t.Fatal(err)
		}
		return arrived, failed
	}
	before := w.now(e)
	arrived, failed := attempts()
	servers.NoError(w.t, d.Run(w.t.Context(), before.Item()))
	after := w.now(e)
	o.Delivered, o.Failed = attempts()
	o.Delivered, o.Failed = o.Delivered-arrived, o.Failed-failed
	o.Claimed, o.Slow, o.Disabled = after.Version > before.Version, after.Slow, after.DisabledAt != nil
	due, err := webhook.DueEvents(w.t.Context(), w.db, e.ID, 1)
	servers.NoError(w.t, err)
	o.More = len(due) > 0 && after.VerifiedAt != nil && after.PausedUntil == nil && !o.Disabled
	return o
}

func (w *world) now(e webhook.Endpoint) webhook.Endpoint { return w.nowIn(w.db, e) }

func (w *world) nowIn(db postgres.DB, e webhook.Endpoint) webhook.Endpoint {
	w.t.Helper()
	now, err := webhook.Get(w.t.Context(), db, e.ID)
	servers.NoError(w.t, err)
	return now
}

// deliveries counts the deliveries of an endpoint by state.
func (w *world) deliveries(e webhook.Endpoint) map[webhook.State]int {
	w.t.Helper()
	list, err := webhook.Deliveries(w.t.Context(), w.db, e.ID, webhook.Filter{}, uuid.Nil, 10_000)
	servers.NoError(w.t, err)
	by := make(map[webhook.State]int)
	for _, d := range list {
		by[d.State]++
	}
	return by
}

// only returns the only delivery of an endpoint, with its attempts.
func (w *world) only(e webhook.Endpoint) (webhook.Delivery, []webhook.Attempt) {
	w.t.Helper()
	list, err := webhook.Deliveries(w.t.Context(), w.db, e.ID, webhook.Filter{}, uuid.Nil, 2)
	if err != nil || len(list) != 1 {
		w.t.Fatal(list, err)
	}
	d, attempts, err := webhook.GetDelivery(w.t.Context(), w.db, e.ID, list[0].EventID, 100)
	servers.NoError(w.t, err)
	return d, attempts
}

// leaseEnds ends the lease of an endpoint, as if its worker had died long ago.
func (w *world) leaseEnds(e webhook.Endpoint) {
	w.t.Helper()
	servers.Exec(w.t, w.db, `UPDATE webhook_endpoints SET lease_until = clock_timestamp() - interval '1 second' WHERE id = $1`, e.ID)
}

// putOff makes what waits to be tried again wait for a minute more: the first waits are of seconds, and would be over on a slow machine.
func (w *world) putOff() {
	w.t.Helper()
	servers.Exec(w.t, w.db, `UPDATE webhook_endpoints SET paused_until = paused_until + interval '1 minute'`)
	servers.Exec(w.t, w.db, `UPDATE webhook_deliveries SET next_at = next_at + interval '1 minute' WHERE attempts > 0`)
}

// webhooksFirstWait is longer than the first wait of the schedule.
const webhooksFirstWait = 6 * time.Second

func (w *world) replay(e webhook.Endpoint, event uuid.UUID) {
	w.tx(func(tx pgx.Tx) error { return webhook.Replay(w.t.Context(), tx, e, event) })
}
