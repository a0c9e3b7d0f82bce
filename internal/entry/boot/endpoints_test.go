package boot

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

// shop is a client with endpoints, in a process that is nothing but its watch over them: no sweep
// runs, and no worker takes tasks.
type shop struct {
	*Process
	t *testing.T
}

func newShop(t *testing.T) *shop {
	t.Helper()
	settings := servers.Patient(servers.Settings(t))
	return &shop{&Process{Settings: settings, Logger: servers.Logger(t), DB: servers.Pool(t, settings), Redis: servers.Redis(t, settings)}, t}
}

func (s *shop) tx(do func(tx pgx.Tx) error) {
	s.t.Helper()
	servers.NoError(s.t, postgres.InTx(context.WithoutCancel(s.t.Context()), s.DB, do))
}

// endpoint makes an endpoint of a client, and changes it as set says.
func (s *shop) endpoint(client, set string) (id uuid.UUID) {
	s.t.Helper()
	id, url := uuidv7.New(), "https://shop.example/hooks"
	s.tx(func(tx pgx.Tx) error {
		_, err := webhook.Create(s.t.Context(), tx, webhook.Endpoint{ID: id, Client: client, URL: url, Events: []string{"*"}}, []byte("sealed"), 16)
		return err
	})
	servers.Exec(s.t, s.DB, `UPDATE webhook_endpoints SET verified_at = clock_timestamp(), `+set+` WHERE id = '`+id.String()+`'`)
	return id
}

func event(tx pgx.Tx, client string) error {
	_, err := tx.Exec(context.Background(), `SELECT emit_webhooks(ARRAY[$1::text], ARRAY['hold.created'], ARRAY[$2::uuid], ARRAY[NULL::bigint], ARRAY[NULL::uuid])`, client, uuidv7.New())
	return err
}

// tasks returns how many tasks were made by now.
func (s *shop) tasks() (n int64) {
	s.t.Helper()
	n, err := s.Redis.LLen(s.t.Context(), "asynq:{"+queue.Name(s.Settings.Redis.Namespace, webhook.Kind)+"}:pending").Result()
	servers.NoError(s.t, err)
	return n
}

// A replay and a test need an event that was sent before.
func TestACommitMakesOneTaskForAnEndpointWithSomethingDue(t *testing.T) {
	t.Parallel()
	const due, leased = `due_at = clock_timestamp()`, `lease_until = clock_timestamp() + interval '1 hour'`
	happens := func(tx pgx.Tx, _ webhook.Endpoint, _ uuid.UUID) error { return event(tx, "shop") }
	for what, c := range map[string]struct {
		set   string // of the endpoint
		do    func(tx pgx.Tx, e webhook.Endpoint, sent uuid.UUID) error
		times int
		tasks int64
	}{
		"a flood of events":   {due, happens, 200, 1},
		"an event of another": {due, func(tx pgx.Tx, _ webhook.Endpoint, _ uuid.UUID) error { return event(tx, "other") }, 1, 0},
		"it is paused":        {`paused_until = clock_timestamp() + interval '1 hour'`, happens, 1, 0},
		"it is disabled":      {`disabled_at = clock_timestamp(), disabled_reason = 'asked'`, happens, 1, 0},
		"a worker has it":     {leased, happens, 1, 0},
		"its worker gives it back": {leased, func(tx pgx.Tx, e webhook.Endpoint, sent uuid.UUID) error {
			_, err := tx.Exec(context.Background(), `UPDATE webhook_endpoints SET lease_until = NULL, version = version + 1 WHERE id = $1`, e.ID)
			return errors.Join(happens(tx, e, sent), err)
		}, 1, 1},
		"a test": {due, func(tx pgx.Tx, e webhook.Endpoint, _ uuid.UUID) error {
			_, err := webhook.Test(context.Background(), tx, e)
			return err
		}, 1, 1},
		"a replay": {due, func(tx pgx.Tx, e webhook.Endpoint, sent uuid.UUID) error {
			return webhook.Replay(context.Background(), tx, e, sent)
		}, 1, 1},
		"it is new": {due, func(tx pgx.Tx, e webhook.Endpoint, _ uuid.UUID) error {
			e.ID, e.VerifiedAt = uuidv7.New(), nil // a challenge is due
			_, err := webhook.Create(context.Background(), tx, e, []byte("sealed"), 16)
			return err
		}, 1, 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.endpoint("shop", due)
			s.tx(func(tx pgx.Tx) error { return event(tx, "shop") })
			servers.Exec(t, s.DB, `UPDATE webhook_deliveries SET state = 'delivered', next_at = NULL, finished_at = clock_timestamp()`)
			servers.Exec(t, s.DB, `UPDATE webhook_endpoints SET `+c.set)
			e, err := webhook.Get(t.Context(), s.DB, id)
			servers.NoError(t, err)
			sent := servers.Value[uuid.UUID](t, s.DB, `SELECT id FROM webhook_events`)
			began, watch := time.Now(), s.watchEndpoints(s.DB) // a task that nobody takes is replaced after a while
			var group sync.WaitGroup
			for range c.times {
				group.Go(func() { s.tx(func(tx pgx.Tx) error { return c.do(tx, e, sent) }) })
			}
			group.Wait()
			rolledBack := errors.New("no")
			if err := postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error { return errors.Join(event(tx, "shop"), rolledBack) }); !errors.Is(err, rolledBack) {
				t.Error(err)
			}
			watch.close() // when all commits are seen to
			if n, most := s.tasks(), c.tasks*int64(1+time.Since(began)/webhook.ReenqueueAfter); n < c.tasks || n > most {
				t.Errorf("%d tasks were made, want %d", n, c.tasks)
			}
		})
	}
}
