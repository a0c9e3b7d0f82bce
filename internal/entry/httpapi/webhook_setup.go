package httpapi

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/service/endpoints"
	"triprize/internal/service/listeners"
	outgoing "triprize/internal/service/webhooks"
	"triprize/internal/store/webhook"
)

func newWebhookHandlers(s *intake, gate *postgres.Gate, key keyring.Keyring) (webhookHandlers, error) {
	guard, err := webhookhttp.NewGuard(s.settings.Webhooks.AllowNetworks)
	if err != nil {
		return webhookHandlers{}, fmt.Errorf("setting webhooks.allow_networks: %w", err)
	}
	sealed := func(endpoint uuid.UUID, secret string) []byte { return outgoing.Seal(key, endpoint, secret) }
	most := s.settings.Webhooks.MaxEndpoints
	return webhookHandlers{s, endpoints.New(gate.Retry(0), sealed, most, guard.CheckURL, webhookDocuments),
		listeners.New(s.db, sealed, s.webhookMessages, most)}, nil
}

// webhookMessages returns the messages of events that have none yet. Who makes one first
// makes it for all.
func (s *intake) webhookMessages(ctx context.Context, events []webhook.Event) (map[uuid.UUID]json.RawMessage, error) {
	documents, err := resource.WebhookDocuments{DB: s.db}.Render(ctx, events)
	if err != nil {
		return nil, err
	}
	messages := make(map[uuid.UUID]json.RawMessage, len(events))
	for _, e := range events {
		if messages[e.ID], err = outgoing.Message(e, documents[e.ID]); err != nil {
			return nil, err
		}
	}
	return webhook.StorePayloads(ctx, s.db, messages)
}
