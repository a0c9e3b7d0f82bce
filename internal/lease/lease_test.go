package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/lease"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/servers"
)

// hung is a database that does not answer.
type hung struct{ postgres.DB }

func (hung) Exec(ctx context.Context, _ string, _ ...any) (pgconn.CommandTag, error) {
	<-ctx.Done()
	return pgconn.CommandTag{}, ctx.Err()
}

func TestItemsAreNotGivenBackForEver(t *testing.T) {
	t.Parallel()
	settings := servers.Defaults(t)
	settings.Redis.URL = "redis://127.0.0.1:1/0" // where nothing goes
	synctest.Test(t, func(t *testing.T) {
		client := queue.NewClient(servers.Redis(t, settings), "ns")
		ended, end := context.WithCancel(t.Context())
		end()
		n, err := lease.Table{}.Enqueue(ended, hung{}, client, []lease.Item{{ID: uuidv7.New(), Kind: "payment"}})
		if n != 0 || !errors.Is(err, context.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(n, err)
		}
	})
}
