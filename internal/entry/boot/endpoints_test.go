package boot

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
	settings := servers.Settings(t)
	return &shop{&Process{Settings: settings, Logger: servers.Logger(t), DB: servers.Pool(t, settings), Redis: servers.Redis(t, settings)}, t}
}

func (s *shop) tx(do func(tx pgx.Tx) error) {
	s.t.Helper()
	if err := postgres.InTx(context.WithoutCancel(s.t.Context()), s.DB, do); err != nil {
		s.t.Error(err)
	}
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
	var b pgx.Batch
	webhook.QueueEvents(&b, []webhook.Event{{Client: &client, Type: webhook.HoldCreated, Subject: uuidv7.New()}})
	return tx.SendBatch(context.Background(), &b).Close()
}

// tasks returns how many tasks were made by now.
func (s *shop) tasks() (n int64) {
	s.t.Helper()
	n, err := s.Redis.LLen(s.t.Context(), "asynq:{"+queue.Name(s.Settings.Redis.Namespace, webhook.Kind)+"}:pending").Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// watched runs do while commits of the process are watched, and until all of them are seen to.
func (s *shop) watched(do func()) {
	e := s.watchEndpoints(s.DB)
	do()
	e.close()
}

func TestAFloodOfEventsMakesOneTaskForAnEndpoint(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.endpoint("shop", `due_at = clock_timestamp()`)
	s.watched(func() {
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 50 {
					s.tx(func(tx pgx.Tx) error { return event(tx, "shop") })
				}
			})
		}
		group.Wait()
	})
	if n := s.tasks(); n != 1 {
		t.Errorf("%d tasks were made", n)
	}
}

// While Postgres or Redis is away, commits do not make it worse.
func TestAfterALookThatFailedThereIsNoneForAWhileAndTheLogSaysItOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.endpoint("shop", `due_at = clock_timestamp()`)
	s.tx(func(tx pgx.Tx) error { return event(tx, "shop") })
	var journal servers.Journal
	s.Logger = slog.New(slog.NewTextHandler(&journal, nil))
	e := s.watchEndpoints() // the test looks
	t.Cleanup(e.close)
	there, away := s.DB, servers.Pool(t, s.Settings)
	away.Close()
	look := func(db *pgxpool.Pool, fails bool, tasks int64) {
		t.Helper()
		s.DB = db
		if err := e.look(t.Context(), []string{id.String()}); fails != (err != nil) {
			t.Errorf("it has %v", err)
		}
		s.DB = there
		if n := s.tasks(); n != tasks {
			t.Errorf("%d tasks were made", n)
		}
	}
	look(away, true, 0)
	e.failed = e.failed.Add(time.Hour) // however slow the test is
	look(away, false, 0)
	look(there, false, 0)
	e.failed, e.told = e.failed.Add(-time.Hour-dueRest), time.Now()
	look(away, true, 0)
	e.failed = e.failed.Add(-dueRest)
	look(there, false, 1)
	if n := strings.Count(journal.String(), "\n"); n != 1 {
		t.Errorf("the log has %d lines: %s", n, &journal)
	}
}

func TestNothingIsMadeForAnEndpointThatIsPausedOrThatAWorkerHas(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.endpoint("shop", `paused_until = clock_timestamp() + interval '1 hour'`)
	s.endpoint("shop", `disabled_at = clock_timestamp(), disabled_reason = 'asked'`)
	s.endpoint("other", `due_at = clock_timestamp()`)
	leased := s.endpoint("shop", `lease_until = clock_timestamp() + interval '1 hour'`)
	s.watched(func() {
		s.tx(func(tx pgx.Tx) error { return event(tx, "shop") })
		rolledBack := errors.New("no")
		if err := postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error { return errors.Join(event(tx, "other"), rolledBack) }); !errors.Is(err, rolledBack) {
			t.Fatal(err)
		}
	})
	if n := s.tasks(); n != 0 {
		t.Errorf("%d tasks were made", n)
	}
	s.watched(func() { // what its worker has not seen is seen now
		servers.Exec(t, s.DB, `UPDATE webhook_endpoints SET lease_until = NULL, version = version + 1 WHERE id = '`+leased.String()+`'`)
	})
	if n := s.tasks(); n != 1 {
		t.Errorf("%d tasks were made for an endpoint that was given back", n)
	}
}

func TestWhatANewEndpointAReplayAndATestHaveMadeDueIsSeenWithTheirCommits(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(s *shop, tx pgx.Tx, e webhook.Endpoint, event uuid.UUID) error{
		"test": func(s *shop, tx pgx.Tx, e webhook.Endpoint, _ uuid.UUID) error {
			_, err := webhook.Test(s.t.Context(), tx, e)
			return err
		},
		"replay": func(s *shop, tx pgx.Tx, e webhook.Endpoint, event uuid.UUID) error {
			return webhook.Replay(s.t.Context(), tx, e, event)
		},
		"new": func(s *shop, tx pgx.Tx, e webhook.Endpoint, _ uuid.UUID) error {
			e.ID, e.VerifiedAt = uuidv7.New(), nil // a challenge is due
			_, err := webhook.Create(s.t.Context(), tx, e, []byte("sealed"), 16)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.endpoint("shop", `due_at = clock_timestamp()`)
			s.tx(func(tx pgx.Tx) error { return event(tx, "shop") })
			servers.Exec(t, s.DB, `UPDATE webhook_deliveries SET state = 'delivered', next_at = NULL, finished_at = clock_timestamp()`)
			e, err := webhook.Get(t.Context(), s.DB, id)
			if err != nil {
				t.Fatal(err)
			}
			s.watched(func() {
				s.tx(func(tx pgx.Tx) error {
					return do(s, tx, e, servers.Value[uuid.UUID](t, tx, `SELECT id FROM webhook_events`))
				})
			})
			if n := s.tasks(); n != 1 {
				t.Errorf("%d tasks were made", n)
			}
		})
	}
}
