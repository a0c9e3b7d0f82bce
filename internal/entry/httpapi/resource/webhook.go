package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/drawing"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/wallet"
	"triprize/internal/webhook"
	"triprize/internal/webhook/sender"
)

// WebhookEndpoint is an endpoint with its valid secrets, of which nothing secret is shown.
func WebhookEndpoint(e webhook.Endpoint, secrets []webhook.Secret) contract.WebhookEndpoint {
	d := contract.WebhookEndpoint{ID: e.ID, Client: e.Client, URL: e.URL, Events: make([]contract.WebhookFilter, len(e.Events)), Description: e.Description,
		State: contract.Enabled, VerifiedAt: e.VerifiedAt, VerificationError: e.ChallengeError, DisabledAt: e.DisabledAt, FailingSince: e.FailingSince, Secrets: make([]contract.WebhookSecret, len(secrets)), CreatedAt: e.CreatedAt}
	for i, pattern := range e.Events {
		d.Events[i] = contract.WebhookFilter(pattern)
	}
	switch {
	case e.DisabledAt != nil:
		d.State = contract.Disabled
	case e.VerifiedAt == nil:
		d.State = contract.Unverified
	}
	if e.DisabledReason != nil {
		reason := string(*e.DisabledReason)
		d.DisabledReason = &reason
	}
	for i, s := range secrets {
		d.Secrets[i] = contract.WebhookSecret{ID: s.ID, CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt}
	}
	return d
}

// WebhookDelivery is an event on its way to an endpoint, without its attempts.
func WebhookDelivery(d webhook.Delivery) contract.WebhookDelivery {
	return contract.WebhookDelivery{EndpointID: d.EndpointID, EventID: d.EventID, Type: contract.WebhookEventType(d.Type), Subject: d.Subject, CampaignID: d.CampaignID,
		State: contract.WebhookDeliveryState(d.State), AttemptCount: d.Attempts, NextAttemptAt: d.NextAt, At: d.At, FinishedAt: d.FinishedAt}
}

// WebhookAttempts are attempts, in their order. Only operators see what they tell of the inside:
// why an address was not reached, and how fast that was known.
func WebhookAttempts(list []webhook.Attempt, to Role) []contract.WebhookAttempt {
	all := make([]contract.WebhookAttempt, len(list))
	for i, a := range list {
		all[i] = contract.WebhookAttempt{At: a.At, DurationMs: int(a.Duration.Milliseconds()), Status: a.Status, Error: a.Error}
		if to != Operator && a.Failure != nil {
			all[i].Error = a.Failure
			if *a.Failure == sender.Unreachable {
				all[i].DurationMs = 0
			}
		}
	}
	return all
}

// WebhookEvent is an event; its message is null until it was sent first.
func WebhookEvent(e webhook.Event) contract.WebhookEvent {
	return contract.WebhookEvent{ID: e.ID, Type: contract.WebhookEventType(e.Type), Client: e.Client, Subject: e.Subject, CampaignID: e.CampaignID, At: e.At, Message: e.Payload}
}

// WebhookDocuments renders what webhooks show, as GET shows it to an app.
type WebhookDocuments struct{ DB postgres.DB }

// Render implements webhook.Renderer. Events of objects that are gone are left out.
func (d WebhookDocuments) Render(ctx context.Context, events []webhook.Event) (map[uuid.UUID]json.RawMessage, error) {
	byKind := make(map[string][]webhook.Event)
	for _, e := range events {
		kind, _, _ := strings.Cut(e.Type, ".")
		byKind[kind] = append(byKind[kind], e)
	}
	rendered := make(map[uuid.UUID]json.RawMessage, len(events))
	for kind, list := range byKind {
		found, err := d.read(ctx, kind, list)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", kind, err)
		}
		for id, document := range found {
			if rendered[id], err = json.Marshal(document); err != nil {
				return nil, fmt.Errorf("render event %s: %w", id, err)
			}
		}
	}
	return rendered, nil
}

// read returns the documents of events of one kind, by event.
func (d WebhookDocuments) read(ctx context.Context, kind string, events []webhook.Event) (map[uuid.UUID]any, error) {
	switch kind {
	case "purchase", "dispute":
		return d.purchases(ctx, events)
	case "refund":
		refunds, err := payment.GetRefunds(ctx, d.DB, subjects(events))
		return bySubject(events, refunds, func(r payment.Refund) (uuid.UUID, any) { return r.ID, Refund(r, App) }), err
	case "hold":
		holds, err := inventory.GetHolds(ctx, d.DB, subjects(events))
		return bySubject(events, holds, func(h inventory.Hold) (uuid.UUID, any) { return h.ID, Hold(h, App) }), err
	case "job":
		jobs, err := job.GetAll(ctx, d.DB, subjects(events))
		return bySubject(events, jobs, func(j job.Job) (uuid.UUID, any) { return j.ID, Job(j) }), err
	case "wallet":
		return d.wallets(ctx, events)
	}
	found := make(map[uuid.UUID]any, len(events))
	for _, e := range events { // few at a time
		document, err := d.one(ctx, kind, e)
		if known, ok := errors.AsType[*fault.Error](err); ok && known.Code == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[e.ID] = document
	}
	return found, nil
}

func (d WebhookDocuments) purchases(ctx context.Context, events []webhook.Event) (map[uuid.UUID]any, error) {
	list, err := purchase.GetAll(ctx, d.DB, access.Everything(), subjects(events))
	if err != nil {
		return nil, err
	}
	details, err := ReadPurchaseDetails(ctx, d.DB, list...)
	return bySubject(events, list, func(p purchase.Purchase) (uuid.UUID, any) { return p.ID, details.Purchase(p, App) }), err
}

func (d WebhookDocuments) one(ctx context.Context, kind string, e webhook.Event) (any, error) {
	switch kind {
	case "campaign":
		details, err := lifecycle.Get(ctx, d.DB, e.Subject)
		if err != nil {
			return nil, err
		}
		document := Campaign(details, App)
		if e.Type != webhook.CampaignFrozen && e.Type != webhook.CampaignVoidAnnounced {
			return document, nil
		}
		progress, err := drawing.ReadProgress(ctx, d.DB, []uuid.UUID{e.Subject})
		if err != nil {
			return nil, err
		}
		if e.Type == webhook.CampaignFrozen {
			document.Freeze = freeze(progress[e.Subject])
		} else {
			document.VoidsAt = progress[e.Subject].VoidsAt
		}
		return document, nil
	case "webhook-endpoint":
		p, err := webhook.Get(ctx, d.DB, e.Subject)
		if err != nil {
			return nil, err
		}
		secrets, err := webhook.Secrets(ctx, d.DB, e.Subject)
		return WebhookEndpoint(p, secrets), err
	}
	return nil, fault.New(fault.NotFound, "the type %s has no resource", e.Type)
}

// wallets reads what events of wallets are about: as many statements for a hundred as for one.
func (d WebhookDocuments) wallets(ctx context.Context, events []webhook.Event) (map[uuid.UUID]any, error) {
	list, err := wallet.GetAll(ctx, d.DB, subjects(events))
	if err != nil {
		return nil, err
	}
	now := make(map[uuid.UUID]wallet.Wallet, len(list))
	for _, w := range list {
		now[w.ID] = w
	}
	places := make([]wallet.EventID, 0, len(events))
	for _, e := range events {
		if e.Version != nil {
			places = append(places, wallet.EventID{Wallet: e.Subject, Version: *e.Version})
		}
	}
	history, err := wallet.EventsAt(ctx, d.DB, places)
	if err != nil {
		return nil, err
	}
	found := make(map[uuid.UUID]any, len(events))
	for _, e := range events {
		if e.Version == nil {
			continue
		}
		w, there := now[e.Subject]
		moved, known := history[wallet.EventID{Wallet: e.Subject, Version: *e.Version}]
		if there && known {
			found[e.ID] = contract.WebhookWallet{Wallet: Wallet(w, App), Event: WalletEvent(moved, App)}
		}
	}
	return found, nil
}

// subjects lists what events are about, each once.
func subjects(events []webhook.Event) []uuid.UUID {
	seen := make(map[uuid.UUID]bool, len(events))
	ids := make([]uuid.UUID, 0, len(events))
	for _, e := range events {
		if !seen[e.Subject] {
			seen[e.Subject] = true
			ids = append(ids, e.Subject)
		}
	}
	return ids
}

// bySubject gives every event the document of what it is about.
func bySubject[T any](events []webhook.Event, list []T, render func(T) (uuid.UUID, any)) map[uuid.UUID]any {
	of := make(map[uuid.UUID]any, len(list))
	for _, item := range list {
		id, document := render(item)
		of[id] = document
	}
	found := make(map[uuid.UUID]any, len(events))
	for _, e := range events {
		if document, ok := of[e.Subject]; ok {
			found[e.ID] = document
		}
	}
	return found
}
