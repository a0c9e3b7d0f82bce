package campaign_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// put inserts a campaign of 10 positions straight into a state, with all of
// them sold where that state wants it.
func put(t *testing.T, db *pgxpool.Pool, state campaign.State) uuid.UUID {
	t.Helper()
	id := uuidv7.New()
	_, err := db.Exec(t.Context(), `
		INSERT INTO campaigns (id, name, base_length, currency, state, policies, positions_total, positions_sold,
		                       published_at, draw_started_at, draw_completed_at, cancelled_at, cancelled_by)
		SELECT $1, 'A campaign', 4, 'JPY', $2, '{}', 10, CASE WHEN $2 IN ('drawing', 'completed') THEN 10 ELSE 0 END,
		       CASE WHEN $2 <> 'pending' THEN now() END, CASE WHEN $2 IN ('drawing', 'completed') THEN now() END,
		       CASE WHEN $2 = 'completed' THEN now() END,
		       CASE WHEN $2 = 'cancelled' THEN now() END, CASE WHEN $2 = 'cancelled' THEN 'operator:ops' END`, id, string(state))
	servers.NoError(t, err)
	return id
}

// exec runs a statement about one campaign that must not fail.
func exec(t *testing.T, db postgres.DB, sql string, id uuid.UUID, args ...any) {
	t.Helper()
	servers.Exec(t, db, sql, append([]any{id}, args...)...)
}

// attempt does something in a transaction and commits what it left, even
// when it was refused: a refusal must not rely on the rollback.
func attempt(t *testing.T, db *pgxpool.Pool, do func(tx pgx.Tx) error) error {
	t.Helper()
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	refusal := do(tx)
	if err := tx.Commit(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Fatal(err)
	}
	return refusal
}

// begin begins a transaction that is rolled back at the end of the test at the latest.
func begin(t *testing.T, db *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// behind does something that has to wait for a transaction, which is then committed or rolled back.
func behind(t *testing.T, db *pgxpool.Pool, first pgx.Tx, commit bool, second func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- second() }()
	servers.AwaitBlocked(t, db, 1)
	end := first.Rollback
	if commit {
		end = first.Commit
	}
	servers.NoError(t, end(t.Context()))
	return <-done
}

func get(t *testing.T, db postgres.DB, id uuid.UUID) campaign.Campaign {
	t.Helper()
	c, err := campaign.Get(t.Context(), db, id)
	servers.NoError(t, err)
	return c
}

// everything is all that the tables of the package have on a campaign.
func everything(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (text string) {
	t.Helper()
	err := db.QueryRow(t.Context(), `
		SELECT jsonb_build_array(
			(SELECT to_jsonb(c) FROM campaigns c WHERE id = $1),
			(SELECT jsonb_agg(to_jsonb(l) ORDER BY layer) FROM layers l WHERE campaign_id = $1),
			(SELECT jsonb_agg(to_jsonb(p) ORDER BY number) FROM prizes p WHERE campaign_id = $1),
			(SELECT to_jsonb(c) FROM commitments c WHERE campaign_id = $1),
			(SELECT to_jsonb(f) FROM freezes f WHERE campaign_id = $1))::text`, id).Scan(&text)
	servers.NoError(t, err)
	return text
}

// sqlState returns the SQLSTATE of an error of the database, or "".
func sqlState(err error) string {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refused.Code
	}
	return ""
}

func pointer[T any](v T) *T { return &v }

// commitment is something to publish a campaign with.
func commitment() campaign.Commitment {
	return campaign.Commitment{Rules: []byte(`{}`), Commitment: make([]byte, 32)}
}
