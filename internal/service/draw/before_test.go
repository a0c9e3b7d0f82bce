package draw_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/store/purchase"
	"triprize/internal/testkit/servers"
)

// freezeAsBefore stores a freeze with the statement of the release before this one.
func freezeAsBefore(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	var tree fairdraw.Tree
	for line, err := range purchase.SoldLines(t.Context(), db, id) {
		if err == nil {
			err = tree.Append(line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root := tree.Root()
	servers.Exec(t, db, `INSERT INTO freezes (campaign_id, root, sold) VALUES ($1, $2, $3)`, id, root[:], tree.Count())
}

// oldSealedSecret reads a secret where the release before looks for it.
func oldSealedSecret(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (sealed []byte, err error) {
	t.Helper()
	err = db.QueryRow(t.Context(), `SELECT sealed_secret FROM commitments WHERE campaign_id = $1`, id).Scan(&sealed)
	return sealed, err
}

// withCopy stores a published campaign as the release before does: its secret stands with
// its commitment, and a trigger copies it.
func withCopy(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, sql := range []string{
		`ALTER TABLE commitments DISABLE TRIGGER commitments_are_kept`,
		`CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT c.campaign_id, c.rules, c.commitment, s.sealed FROM commitments c JOIN draw_secrets s USING (campaign_id) WHERE campaign_id = '` + id.String() + `'`,
		`DELETE FROM commitments WHERE campaign_id IN (SELECT campaign_id FROM kept)`,
		`DELETE FROM draw_secrets WHERE campaign_id IN (SELECT campaign_id FROM kept)`,
		`ALTER TABLE commitments ENABLE TRIGGER commitments_are_kept`,
		`INSERT INTO commitments (campaign_id, rules, commitment, sealed_secret) SELECT campaign_id, rules, commitment, sealed FROM kept`,
	} {
		servers.Exec(t, tx, sql)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}
