package resource

import (
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/store/webhook"
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
			if *a.Failure == webhookhttp.Unreachable {
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
