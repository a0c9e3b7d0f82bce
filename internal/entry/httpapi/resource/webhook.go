package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"triprize/internal/approval"
	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/uuidv7"
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
		d.DisabledReason = new(string(*e.DisabledReason))
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
		if !to.SeesAll() && a.Failure != nil {
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
		documentOf, err := d.read(ctx, kind, list)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", kind, err)
		}
		for _, e := range list {
			document, err := documentOf(e)
			if known, ok := errors.AsType[*fault.Error](err); document == nil && err == nil || ok && known.Code == fault.NotFound {
				continue
			}
			if err == nil {
				rendered[e.ID], err = json.Marshal(document)
			}
			if err != nil {
				return nil, fmt.Errorf("render event %s: %w", e.ID, err)
			}
		}
	}
	return rendered, nil
}

// documents returns the document of what an event is about; nil: it is gone.
type documents func(webhook.Event) (any, error)

// read reads what events of one kind are about.
func (d WebhookDocuments) read(ctx context.Context, kind string, events []webhook.Event) (documents, error) {
	subjects := make([]uuid.UUID, len(events))
	for i, e := range events {
		subjects[i] = e.Subject
	}
	slices.SortFunc(subjects, uuidv7.Compare)
	subjects = slices.Compact(subjects)
	switch kind {
	case "purchase", "dispute":
		list, err := purchase.GetAll(ctx, d.DB, access.Everything(), subjects)
		if err != nil {
			return nil, err
		}
		details, err := ReadPurchaseDetails(ctx, d.DB, list...)
		return bySubject(list, func(p purchase.Purchase) (uuid.UUID, any) { return p.ID, details.Purchase(p, App) }), err
	case "refund":
		refunds, err := payment.GetRefunds(ctx, d.DB, subjects)
		return bySubject(refunds, func(r payment.Refund) (uuid.UUID, any) { return r.ID, Refund(r, App) }), err
	case "hold":
		holds, err := inventory.GetHolds(ctx, d.DB, subjects)
		return bySubject(holds, func(h inventory.Hold) (uuid.UUID, any) { return h.ID, Hold(h, App) }), err
	case "job":
		jobs, err := job.GetAll(ctx, d.DB, subjects)
		return bySubject(jobs, func(j job.Job) (uuid.UUID, any) { return j.ID, Job(j) }), err
	case "approval":
		requests, err := approval.GetAll(ctx, d.DB, subjects)
		return bySubject(requests, func(r approval.Request) (uuid.UUID, any) {
			r.Preview = nil // it has parts of the body
			return r.ID, Approval(r)
		}), err
	case "wallet":
		return d.wallets(ctx, events, subjects)
	}
	return func(e webhook.Event) (any, error) { return d.one(ctx, kind, e) }, nil // few at a time
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
func (d WebhookDocuments) wallets(ctx context.Context, events []webhook.Event, subjects []uuid.UUID) (documents, error) {
	list, err := wallet.GetAll(ctx, d.DB, subjects)
	if err != nil {
		return nil, err
	}
	now := make(map[uuid.UUID]wallet.Wallet, len(list))
	for _, w := range list {
		now[w.ID] = w
	}
	var changes []wallet.EventID
	for _, e := range events {
		if e.Version != nil {
			changes = append(changes, wallet.EventID{Wallet: e.Subject, Version: *e.Version})
		}
	}
	history, err := wallet.EventsAt(ctx, d.DB, changes)
	return func(e webhook.Event) (any, error) {
		w, there := now[e.Subject]
		if e.Version == nil || !there {
			return nil, nil
		}
		moved, known := history[wallet.EventID{Wallet: e.Subject, Version: *e.Version}]
		if !known {
			return nil, nil
		}
		return contract.WebhookWallet{Wallet: Wallet(w, App), Event: WalletEvent(moved, App)}, nil
	}, err
}

// bySubject gives every event the document of what it is about.
func bySubject[T any](list []T, render func(T) (uuid.UUID, any)) documents {
	of := make(map[uuid.UUID]any, len(list))
	for _, item := range list {
		id, document := render(item)
		of[id] = document
	}
	return func(e webhook.Event) (any, error) { return of[e.Subject], nil }
}
