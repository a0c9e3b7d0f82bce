package key_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/testkit/servers"
)

// opens reports whether a cookie is a session's.
func opens(t *testing.T, s *key.Sessions, cookie string) bool {
	t.Helper()
	_, err := s.Find(t.Context(), cookie, false)
	if err != nil && fault.CodeOf(err) != fault.Unauthenticated {
		t.Fatal(err)
	}
	return err == nil
}

func sessions(t *testing.T, db *pgxpool.Pool, secret string) *key.Sessions {
	t.Helper()
	return key.NewSessions(db, verifier(t, db, 0), secret) // nothing is cached
}

func TestASessionEndsAndItsRowAloneOpensNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	ours, same, other := sessions(t, db, "ours"), sessions(t, db, "ours"), sessions(t, db, "another")
	for what, ends := range map[string]string{
		"its operator has left":  `UPDATE console_sessions SET seen_at = seen_at - interval '30 minutes' WHERE key_prefix = $1`,
		"it is twelve hours old": `UPDATE console_sessions SET created_at = created_at - interval '12 hours' WHERE key_prefix = $1`,
		"its key is revoked":     `UPDATE api_keys SET revoked_at = clock_timestamp() WHERE prefix = $1`,
	} {
		text, prefix, _ := create(t, db, key.Operator, "ops")
		_, cookie, err := ours.Open(t.Context(), text, "Ada")
		servers.NoError(t, err)
		if !opens(t, ours, cookie) || !opens(t, same, cookie) {
			t.Errorf("%s: before that it is no session of every api", what)
		}
		_, written, err := other.Open(t.Context(), text, "Eve") // its row is as ours; its MAC is by a key that is not ours
		servers.NoError(t, err)
		if opens(t, ours, written) || opens(t, ours, cookie[:20]+written[20:]) || opens(t, ours, "") {
			t.Error("a row opens a session")
		}
		servers.Exec(t, db, ends, prefix)
		if opens(t, ours, cookie) || opens(t, same, cookie) {
			t.Errorf("%s: it goes on", what)
		}
	}
}

// Pages that poll do not keep a session alive whose operator has left.
func TestASessionIsRenewedByItsOperatorOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	s := sessions(t, db, "ours")
	text, _, _ := create(t, db, key.Operator, "ops")
	_, cookie, err := s.Open(t.Context(), text, "Ada")
	servers.NoError(t, err)
	for byOperator, state := range map[bool]string{false: "idle", true: "renewed"} {
		servers.Exec(t, db, `UPDATE console_sessions SET seen_at = clock_timestamp() - interval '20 minutes'`)
		_, err := s.Find(t.Context(), cookie, byOperator)
		servers.NoError(t, err)
		if now := servers.Value[string](t, db, `SELECT CASE WHEN seen_at > clock_timestamp() - interval '15 minutes' THEN 'renewed' ELSE 'idle' END FROM console_sessions`); now != state {
			t.Errorf("by its operator: %t: it is %s", byOperator, now)
		}
	}
}
