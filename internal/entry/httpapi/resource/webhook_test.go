package resource_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/webhook"
)

func TestMain(m *testing.M) { servers.Main(m) }

// counted counts what is asked of a database.
type counted struct {
	db    postgres.DB
	asked int
}

func (c *counted) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	c.asked++
	return c.db.Exec(ctx, sql, args...)
}

func (c *counted) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.asked++
	return c.db.Query(ctx, sql, args...)
}

func (c *counted) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	c.asked++
	return c.db.QueryRow(ctx, sql, args...)
}

func (c *counted) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c.asked++
	return c.db.SendBatch(ctx, b)
}

// Every purchase with a wallet has an event of the wallet: a crowd of them is rendered at once.
func TestACrowdOfWalletEventsIsReadWithAsFewStatementsAsOne(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	version := int64(1)
	var events []webhook.Event
	for _, owner := range []string{"a", "b", "c", "d", "e"} {
		events = append(events, webhook.Event{ID: uuidv7.New(), Type: "wallet.credit", Subject: fixture.Wallet(t, db, owner, 10), Version: &version})
	}
	gone := webhook.Event{ID: uuidv7.New(), Type: "wallet.credit", Subject: uuid.New(), Version: &version}
	read := func(list ...webhook.Event) (asked int) {
		t.Helper()
		c := &counted{db: db}
		documents, err := resource.WebhookDocuments{DB: c}.Render(t.Context(), append(list, gone))
		if err != nil || len(documents) != len(list) || documents[gone.ID] != nil {
			t.Fatalf("got %d documents for %d events, %v", len(documents), len(list), err)
		}
		return c.asked
	}
	if one, all := read(events[0]), read(events...); all != one {
		t.Errorf("%d statements for %d events, %d for one", all, len(events), one)
	}
}

// A dispute is told with its purchase, and a freeze with its record beside the campaign.
func TestEventsCarryWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	bought, _ := fixture.BuyByCard(t, db, id, "mina", 0, 1)
	refs := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))
	if _, err := fixture.Seller(db).Cancel(t.Context(), refs, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	back := servers.Value[uuid.UUID](t, db, `SELECT id FROM refunds WHERE purchase_id = $1`, bought)
	servers.Exec(t, db, `INSERT INTO freezes (campaign_id, root, sold, record) VALUES ($1, $2, 0, '{"count":0}')`, id, make([]byte, 32))
	events := []webhook.Event{{Type: "dispute.created", Subject: bought}, {Type: "refund.failed", Subject: back}, {Type: webhook.CampaignFrozen, Subject: id},
		{Type: "campaign.drawn", Subject: id}}
	for i := range events {
		events[i].ID = uuidv7.New()
	}
	documents, err := resource.WebhookDocuments{DB: db}.Render(t.Context(), events)
	servers.NoError(t, err)
	for _, e := range events {
		var data struct {
			ID     uuid.UUID
			Freeze struct{ Record json.RawMessage }
		}
		if err := json.Unmarshal(documents[e.ID], &data); err != nil || data.ID != e.Subject {
			t.Errorf("%s: %s, %v", e.Type, documents[e.ID], err)
		}
		if frozen := string(data.Freeze.Record) == `{"count":0}`; frozen != (e.Type == webhook.CampaignFrozen) {
			t.Errorf("%s: %s", e.Type, documents[e.ID])
		}
	}
}

func TestOnlyOperatorsSeeWhyAnAddressWasNotReached(t *testing.T) {
	t.Parallel()
	details, failure, answered := "lookup db.internal on 10.0.0.2:53: no such host", "unreachable", "answered 500"
	list := []webhook.Attempt{{Duration: time.Second, Error: &details, Failure: &failure}, {Duration: time.Second, Error: &answered}}
	for role, want := range map[resource.Role]struct {
		text string
		ms   int
	}{resource.App: {failure, 0}, resource.Operator: {details, 1000}} {
		shown := resource.WebhookAttempts(list, role)
		if *shown[0].Error != want.text || shown[0].DurationMs != want.ms || *shown[1].Error != answered || shown[1].DurationMs != 1000 {
			t.Errorf("%s: %+v", role, shown)
		}
	}
}
