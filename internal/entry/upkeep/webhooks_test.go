package upkeep_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/lease"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

func TestTheAuditFindsWhatIsWrongWithWebhooks(t *testing.T) {
	t.Parallel()
	for _, damage := range []struct{ invariant, sql string }{
		{"has its event", `DELETE FROM webhook_events WHERE type = 'purchase.completed'`},
		{"has its event", `INSERT INTO webhook_attempts (event_id, endpoint_id, at, duration_ms) SELECT gen_random_uuid(), id, now(), 1 FROM webhook_endpoints`},
		{"its own client's resources", `UPDATE webhook_endpoints SET client = 'other'`},
		{"is everybody's", `UPDATE webhook_events SET client = NULL WHERE type = 'purchase.completed'`},
		{"its resource's client's", `UPDATE webhook_events SET client = 'other' WHERE type = 'purchase.completed'`},
		{"has arrived there", `DELETE FROM webhook_attempts`},
		{"has arrived there", `UPDATE webhook_attempts SET error = 'answered 500'`},
		{"what its event is", `UPDATE webhook_events SET payload = '{"type":"hold.created"}'`},
		{"one present secret", `DELETE FROM webhook_secrets`},
		{"one present secret", `UPDATE webhook_secrets SET expires_at = now()`},
	} {
		t.Run(damage.sql, func(t *testing.T) {
			t.Parallel()
			db := servers.DB(t)
			told(t, db)
			fixture.Sound(t, db)
			if tag, err := db.Exec(t.Context(), damage.sql); err != nil || tag.RowsAffected() == 0 {
				t.Fatal(tag, err)
			}
			violations := checkAll(t, db)
			if !slices.ContainsFunc(violations, func(v audit.Violation) bool { return strings.Contains(v.Invariant, damage.invariant) }) {
				t.Errorf("found %v", violations)
			}
		})
	}
}

// told makes an endpoint that was told of a purchase.
func told(t *testing.T, db *pgxpool.Pool) {
	t.Helper()
	url, id := "https://shop.example/", uuidv7.New()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		_, err := webhook.Create(t.Context(), tx, webhook.Endpoint{ID: id, Client: "test", URL: url, Events: []string{"*"}}, []byte("sealed"), 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Buy(t, db, fixture.Campaign(t, db, fixture.Draft(3)), "mina", 0, 1)
	e, ok, err := webhook.Claim(t.Context(), db, lease.Item{ID: id}, time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	due, err := webhook.DueEvents(t.Context(), db, id, 10)
	if err != nil || len(due) != 1 {
		t.Fatal(due, err)
	}
	status := 200
	sent := webhook.Sent{Attempt: webhook.Attempt{EventID: due[0].ID, EndpointID: id, At: time.Now(), Status: &status}, Due: due[0].Due}
	err = postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		_, err := webhook.Record(t.Context(), tx, e, webhook.Round{Sent: []webhook.Sent{sent}, Arrived: true}, time.Hour)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
