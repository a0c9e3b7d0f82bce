package campaign_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

// columns returns the winning columns of a campaign's prizes, 0 for none.
func columns(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (won []int) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT array_agg(coalesce(winning_column, 0) ORDER BY number) FROM prizes WHERE campaign_id = $1`, id).Scan(&won)
	servers.NoError(t, err)
	return won
}

const (
	checkViolation      = "23514"
	uniqueViolation     = "23505"
	foreignKeyViolation = "23503"
	notNullViolation    = "23502"
)

// forbidden are statements that break one rule of the tables each. $1 is the
// campaign; its layer 1 has prize 1.
var forbidden = []struct {
	state campaign.State
	sql   string
	code  string
}{
	{campaign.Active, `UPDATE campaigns SET positions_sold = 11 WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET positions_reserved = 11 WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET positions_reserved = 1, positions_sold = 10 WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET positions_blocked = 1 WHERE id = $1`, checkViolation}, // it is drawn when it is sold out
	{campaign.Active, `UPDATE campaigns SET positions_sold = -1 WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET positions_reserved = -1 WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET positions_total = 11 WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET base_length = 5 WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET base_length = 2, positions_total = 3 WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET base_length = 1001, positions_total = 501501 WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET base_length = 0, positions_total = 0 WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET base_length = 0, positions_total = 500501 WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE layers SET positions = 0 WHERE campaign_id = $1`, checkViolation},
	{campaign.Pending, `UPDATE layers SET positions = NULL WHERE campaign_id = $1`, notNullViolation},
	{campaign.Pending, `UPDATE layers SET first_number = 0 WHERE campaign_id = $1`, checkViolation},
	{campaign.Pending, `UPDATE layers SET label = '' WHERE campaign_id = $1`, checkViolation},
	{campaign.Pending, `UPDATE layers SET label = repeat('x', 101) WHERE campaign_id = $1`, checkViolation},
	{campaign.Pending, `UPDATE layers SET layer = 1001 WHERE campaign_id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET name = '' WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET name = repeat('n', 201) WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET currency = 'jpy' WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET currency = 'JPYX' WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET purchase_limit = 0 WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET sale_starts_at = now(), sale_ends_at = now() WHERE id = $1`, checkViolation},
	{campaign.Pending, `UPDATE campaigns SET policies = NULL WHERE id = $1`, notNullViolation},
	{campaign.Pending, `UPDATE campaigns SET paused_at = now() WHERE id = $1`, checkViolation},
	{campaign.Drawing, `UPDATE campaigns SET paused_at = now() WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET published_at = NULL WHERE id = $1`, checkViolation},
	{campaign.Drawing, `UPDATE campaigns SET published_at = NULL WHERE id = $1`, checkViolation},
	{campaign.Completed, `UPDATE campaigns SET published_at = NULL WHERE id = $1`, checkViolation},
	{campaign.Completed, `UPDATE campaigns SET draw_completed_at = NULL WHERE id = $1`, checkViolation},
	{campaign.Drawing, `UPDATE campaigns SET draw_completed_at = now() WHERE id = $1`, checkViolation},
	{campaign.Drawing, `UPDATE campaigns SET execution_lock_id = $1 WHERE id = $1`, checkViolation},
	{campaign.Drawing, `UPDATE campaigns SET execution_locked_at = now() WHERE id = $1`, checkViolation},
	{campaign.Drawing, `UPDATE campaigns SET execution_lock_id = $1, execution_locked_at = now() WHERE id = $1`, checkViolation},
	{campaign.Drawing, `UPDATE campaigns SET execution_locked_by = 'a worker' WHERE id = $1`, checkViolation},
	{campaign.Active, `UPDATE campaigns SET execution_lock_id = $1, execution_locked_at = now(), execution_locked_by = 'a worker' WHERE id = $1`, checkViolation},
	{campaign.Completed, `UPDATE campaigns SET execution_lock_id = $1, execution_locked_at = now(), execution_locked_by = 'a worker' WHERE id = $1`, checkViolation},
	{campaign.Active, `INSERT INTO campaigns SELECT * FROM campaigns WHERE id = $1`, uniqueViolation},
	{campaign.Active, `INSERT INTO campaigns (id, name, base_length, currency, state, policies, positions_total)
		SELECT gen_random_uuid(), name, base_length, currency, 'on sale', policies, positions_total FROM campaigns WHERE id = $1`, checkViolation},

	{campaign.Pending, `INSERT INTO layers VALUES ($1, 1, 100, 1, 1)`, uniqueViolation},
	{campaign.Pending, `INSERT INTO layers VALUES ($1, 0, 100, 1, 1)`, checkViolation},
	{campaign.Pending, `INSERT INTO layers SELECT $1, 2, 0, 1, 1`, checkViolation},
	{campaign.Pending, `INSERT INTO layers SELECT gen_random_uuid(), 2, 100, 1, 1 FROM campaigns WHERE id = $1`, foreignKeyViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 1, 1, 'P', NULL)`, uniqueViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 0, 1, 'P', NULL)`, checkViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 2, 4, 'P', NULL)`, foreignKeyViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 2, 1, '', NULL)`, checkViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 2, 1, repeat('n', 201), NULL)`, checkViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 2, 1, 'P', 0)`, checkViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 2, 1, 'P', 2)`, checkViolation},
	{campaign.Pending, `INSERT INTO prizes VALUES ($1, 2, 1, 'P', 1), ($1, 3, 1, 'P', 1)`, uniqueViolation},

	{campaign.Active, `INSERT INTO commitments SELECT gen_random_uuid(), '{}', sha256('c') FROM campaigns WHERE id = $1`, foreignKeyViolation},
	{campaign.Active, `INSERT INTO commitments VALUES ($1, '{}', 'short')`, checkViolation},
	{campaign.Active, `INSERT INTO commitments VALUES ($1, '{}', sha256('c')), ($1, '{}', sha256('c'))`, uniqueViolation},
	{campaign.Drawing, `INSERT INTO freezes VALUES ($1, 'short', 10, '{}')`, checkViolation},
	{campaign.Drawing, `INSERT INTO freezes VALUES ($1, sha256('r'), -1, '{}')`, checkViolation},
	{campaign.Drawing, `INSERT INTO freezes VALUES ($1, sha256('r'), 10, '{}'), ($1, sha256('r'), 10, '{}')`, uniqueViolation},
	{campaign.Drawing, `INSERT INTO freezes SELECT gen_random_uuid(), sha256('r'), 10, '{}' FROM campaigns WHERE id = $1`, foreignKeyViolation},
	{campaign.Drawing, `INSERT INTO draws VALUES ($1, 'nobody', sha256('r'), sha256('s'), '', '[]', 1)`, checkViolation},
	{campaign.Drawing, `INSERT INTO draws VALUES ($1, 'operator', 'short', sha256('s'), '', '[]', 1)`, checkViolation},
	{campaign.Drawing, `INSERT INTO draws VALUES ($1, 'operator', sha256('r'), 'short', '', '[]', 1)`, checkViolation},
	{campaign.Drawing, `INSERT INTO draws VALUES ($1, 'operator', sha256('r'), sha256('s'), '', '[]', 1), ($1, 'operator', sha256('r'), sha256('s'), '', '[]', 2)`, uniqueViolation},
	{campaign.Drawing, `INSERT INTO draws SELECT gen_random_uuid(), 'operator', sha256('r'), sha256('s'), '', '[]', 1 FROM campaigns WHERE id = $1`, foreignKeyViolation},
}

func TestTheTablesRefuseWhatCannotBe(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	byState := make(map[campaign.State]uuid.UUID)
	for _, state := range campaign.States {
		id := put(t, db, state)
		exec(t, db, `INSERT INTO layers VALUES ($1, 1, 100, 1, 1)`, id)
		exec(t, db, `INSERT INTO prizes VALUES ($1, 1, 1, 'P', NULL)`, id)
		byState[state] = id
	}
	for _, c := range forbidden {
		id := byState[c.state]
		before := everything(t, db, id)
		_, err := db.Exec(t.Context(), c.sql, id)
		if sqlState(err) != c.code || postgres.IsTransient(err) {
			t.Errorf("%s\n%v, want SQLSTATE %s", c.sql, err, c.code)
		}
		if after := everything(t, db, id); after != before {
			t.Errorf("%s\nleft %s", c.sql, after)
		}
	}
}

func TestTheTablesTakeWhatLiesAtTheBounds(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, sql := range []string{
		`UPDATE campaigns SET positions_sold = 10 WHERE id = $1`,
		`UPDATE campaigns SET positions_reserved = 4, positions_sold = 6 WHERE id = $1`,
		`UPDATE campaigns SET base_length = 3, positions_total = 6 WHERE id = $1`,
		`UPDATE campaigns SET base_length = 1000, positions_total = 500500 WHERE id = $1`,
		`UPDATE campaigns SET name = repeat('籤', 200), purchase_limit = 1 WHERE id = $1`,
		`UPDATE campaigns SET sale_starts_at = now(), sale_ends_at = now() + interval '1 microsecond' WHERE id = $1`,
		`UPDATE campaigns SET paused_at = now() WHERE id = $1`,
	} {
		exec(t, db, sql, put(t, db, campaign.Active))
	}
}
