package key_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/key"
	"triprize/internal/testkit/servers"
)

// asFleet gives a transaction roles, which end with it: an owner of the tables that is no superuser, and
// fleet, with every right in the tables that their owner can grant.
const asFleet = `
	CREATE ROLE keys_owner NOLOGIN;
	CREATE ROLE keys_fleet NOLOGIN;
	CREATE ROLE keys_heir NOLOGIN INHERIT IN ROLE keys_owner;
	CREATE ROLE keys_member NOLOGIN NOINHERIT IN ROLE keys_owner;
	ALTER TABLE api_keys OWNER TO keys_owner;
	ALTER TABLE api_clients OWNER TO keys_owner;
	ALTER TABLE goose_db_version OWNER TO keys_owner;
	GRANT ALL ON ALL TABLES IN SCHEMA public TO keys_fleet, keys_member;
	GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO keys_fleet, keys_owner;
	CREATE SCHEMA keys_shadow AUTHORIZATION keys_fleet;
	GRANT USAGE ON SCHEMA lease TO keys_fleet; -- the test's database notes there that its schema changes
	GRANT INSERT ON lease.changes TO keys_fleet;`

// Who has the password of api, worker and scheduler must not get further than they do.
func TestOnlyTheOwnerOfTheTablesMakesOperators(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	_, _, _ = create(t, db, key.App, "shop")
	_, revoked, _ := create(t, db, key.Operator, "ops")
	revoke(t, db, revoked)
	tx, err := db.Begin(t.Context())
	servers.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	servers.Exec(t, tx, asFleet)
	// as returns what a role gets, and leaves nothing behind.
	as := func(role string, do func(pgx.Tx) error) error {
		t.Helper()
		sub, err := tx.Begin(t.Context())
		servers.NoError(t, err)
		defer func() { _ = sub.Rollback(t.Context()) }()
		servers.Exec(t, sub, `SET LOCAL ROLE `+role)
		return do(sub)
	}
	statement := func(sql string) func(pgx.Tx) error {
		return func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), sql); return err }
	}
	const owner = `INSERT INTO api_keys (prefix, secret_hash, role, client) VALUES ('thief', sha256(''), 'operator', 'ops')`
	for _, sql := range []string{
		owner, owner + ` ON CONFLICT (prefix) DO UPDATE SET last_used_at = clock_timestamp()`,
		`INSERT INTO api_keys SELECT 'thief', secret_hash, role, client FROM api_keys`,
		`UPDATE api_keys SET role = 'operator', client = 'ops'`, `UPDATE api_keys SET secret_hash = sha256('')`, `UPDATE api_keys SET prefix = prefix || '0'`,
		`UPDATE api_keys SET client = 'shop', role = 'app' WHERE client = 'ops'`, `UPDATE api_keys SET created_at = clock_timestamp()`,
		`UPDATE api_keys SET revoked_at = NULL WHERE client = 'ops'`, `UPDATE api_keys SET revoked_at = revoked_at + interval '1 hour'`,
		`UPDATE api_keys SET last_used_at = clock_timestamp(), role = 'operator', client = 'ops'`,
		`DELETE FROM api_keys`, `TRUNCATE api_keys CASCADE`,
		`INSERT INTO api_clients (name, role) VALUES ('thief', 'operator')`, `INSERT INTO api_clients (name, role) VALUES ('ops', 'operator') ON CONFLICT DO NOTHING`,
		`UPDATE api_clients SET role = 'operator'`, `UPDATE api_clients SET name = 'thief' WHERE name = 'none'`, `DELETE FROM api_clients`, `TRUNCATE api_clients CASCADE`,
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (1000, true)`, `UPDATE goose_db_version SET is_applied = false`,
		`DELETE FROM goose_db_version`, `TRUNCATE goose_db_version`,
		// What would take the guard away, or lead it astray.
		`SET LOCAL session_replication_role = replica`, `ALTER TABLE api_keys DISABLE TRIGGER USER`, `DROP TRIGGER api_keys_are_the_owners ON api_keys`,
		`CREATE OR REPLACE FUNCTION owners_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`CREATE TEMP TABLE pg_class (oid oid, relowner oid); INSERT INTO pg_class SELECT 'api_keys'::regclass, 'keys_fleet'::regrole; SET LOCAL search_path = pg_temp, public; ` + owner,
		`CREATE FUNCTION keys_shadow.pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'; SET LOCAL search_path = keys_shadow, pg_catalog, public; ` + owner,
		`CREATE FUNCTION keys_shadow.promote() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.role := ''operator''; NEW.client := ''ops''; RETURN NEW; END';
			CREATE TRIGGER zz BEFORE UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION keys_shadow.promote(); UPDATE api_keys SET last_used_at = clock_timestamp() WHERE role = 'app'`,
	} {
		for _, role := range []string{"keys_fleet", "keys_member"} {
			if role == "keys_member" && (strings.Contains(sql, "keys_")) { // it may become the owner, and says so
				continue
			}
			if pg, ok := errors.AsType[*pgconn.PgError](as(role, statement(sql))); !ok || pg.Code != "42501" {
				t.Errorf("%s: %s: %v", role, sql, pg)
			}
		}
	}
	for _, sql := range []string{
		`UPDATE api_keys SET last_used_at = clock_timestamp()`, `UPDATE api_keys SET revoked_at = clock_timestamp() WHERE revoked_at IS NULL`,
		`UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp())`, `UPDATE api_keys SET role = role`, `SELECT FROM api_keys FOR UPDATE`,
	} {
		if err := as("keys_fleet", statement(sql)); err != nil {
			t.Errorf("the fleet: %s: %v", sql, err)
		}
	}
	makeKey := func(tx pgx.Tx) error { _, err := key.Create(t.Context(), tx, key.Operator, "ops"); return err }
	for role, may := range map[string]bool{"keys_fleet": false, "keys_member": false, "keys_heir": true, "keys_owner": true, "NONE": true /* a superuser */} {
		if err := as(role, makeKey); (err == nil) != may || err != nil && !strings.Contains(err.Error(), "triprize migrate") {
			t.Errorf("a key made as %s: %v", role, err)
		}
	}
	if err := as("keys_member", func(tx pgx.Tx) error { return errors.Join(statement(`SET LOCAL ROLE keys_owner`)(tx), makeKey(tx)) }); err != nil {
		t.Errorf("a member that becomes the owner: %v", err)
	}
}
