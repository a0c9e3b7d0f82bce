package httpapi

import (
	"context"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/job"
	"triprize/internal/webhook"
)

// webhookDocuments are the bodies of answers about endpoints.
var webhookDocuments = webhook.Documents{
	Endpoint: func(e webhook.Endpoint, secrets []webhook.Secret) any { return resource.WebhookEndpoint(e, secrets) },
	Delivery: func(d webhook.Delivery) any { return resource.WebhookDelivery(d) },
	Replayed: func(r webhook.ReplayResult) any {
		return contract.WebhookReplayed{Replayed: r.Count, More: r.More, Until: r.Until}
	},
}

// endpointsOf is whose endpoints a caller sees: an app its own, an operator all, which is
// the empty client.
func endpointsOf(ctx context.Context) (client string) {
	if c := call.Of(ctx); !c.Role.SeesAll() {
		return c.Client
	}
	return ""
}

func (s *server) CreateWebhookEndpoint(ctx context.Context, r operations.CreateWebhookEndpointRequestObject) (operations.Answer, error) {
	c := call.Of(ctx)
	draft := webhook.Endpoint{Client: c.Client, MadeBy: c.KeyPrefix, URL: r.Body.URL, Events: textsOf(r.Body.Events), Description: r.Body.Description}
	if r.Body.Client != nil {
		if c.Role != resource.Operator {
			return nil, fault.New(fault.Forbidden, "only an operator may create an endpoint for another client; omit client")
		}
		draft.Client = *r.Body.Client
	}
	request := s.command(ctx, job.KindEndpointCreate)
	done, secret, err := s.endpoints.Create(ctx, request, draft)
	answer, err := s.commandDone(ctx, done, err)
	if err != nil {
		return nil, err
	}
	return answer.WithSecret(secret)
}

func textsOf[T ~string](list []T) []string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = string(one)
	}
	return texts
}

func (s *server) ListWebhookEndpoints(ctx context.Context, r operations.ListWebhookEndpointsRequestObject) (operations.Answer, error) {
	owner := endpointsOf(ctx)
	after, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := webhook.List(ctx, s.db, owner, after, limit+1)
	if err != nil {
		return nil, err
	}
	list, next := response.Cut(list, limit, func(last webhook.Endpoint) uuid.UUID { return last.ID })
	ids := make([]uuid.UUID, len(list))
	for i, e := range list {
		ids[i] = e.ID
	}
	secrets, err := webhook.SecretsOf(ctx, s.db, ids)
	if err != nil {
		return nil, err
	}
	pending, err := webhook.PendingOf(ctx, s.db, ids)
	documents := response.Documents(list, func(e webhook.Endpoint) contract.WebhookEndpoint { return resource.WebhookEndpoint(e, secrets[e.ID]) })
	for i := range pending {
		documents[i].Pending = &pending[i]
	}
	return operations.ListWebhookEndpoints200(contract.WebhookEndpointPage{WebhookEndpoints: documents, NextCursor: next}, err)
}

func (s *server) GetWebhookEndpoint(ctx context.Context, r operations.GetWebhookEndpointRequestObject) (operations.Answer, error) {
	e, err := webhook.FindEndpoint(ctx, s.db, endpointsOf(ctx), r.Endpoint)
	if err != nil {
		return nil, err
	}
	secrets, err := webhook.Secrets(ctx, s.db, e.ID)
	return operations.GetWebhookEndpoint200(resource.WebhookEndpoint(e, secrets), err)
}

func (s *server) PatchWebhookEndpoint(ctx context.Context, r operations.PatchWebhookEndpointRequestObject) (operations.Answer, error) {
	owner := endpointsOf(ctx)
	change := webhook.Change{URL: r.Body.URL, Key: call.Of(ctx).KeyPrefix}
	if r.Body.Events != nil {
		change.Events = textsOf(*r.Body.Events)
	}
	if r.Body.Description.IsSpecified() {
		description, _ := r.Body.Description.Get() // null: empty, which is none
		change.Description = &description
	}
	document, err := s.endpoints.Patch(ctx, owner, r.Endpoint, change)
	changed, _ := document.(contract.WebhookEndpoint) // webhookDocuments makes them
	return operations.PatchWebhookEndpoint200(changed, err)
}

func (s *server) DeleteWebhookEndpoint(ctx context.Context, r operations.DeleteWebhookEndpointRequestObject) (operations.Answer, error) {
	return noContent, s.endpoints.Delete(ctx, endpointsOf(ctx), r.Endpoint)
}

func (s *server) EnableWebhookEndpoint(ctx context.Context, r operations.EnableWebhookEndpointRequestObject) (operations.Answer, error) {
	return s.onEndpoint(ctx, job.KindEndpointEnable, func(request job.Request) (job.Accepted, error) {
		return s.endpoints.Enable(ctx, request, endpointsOf(ctx), call.Of(ctx).KeyPrefix, r.Endpoint)
	})
}

func (s *server) DisableWebhookEndpoint(ctx context.Context, r operations.DisableWebhookEndpointRequestObject) (operations.Answer, error) {
	return s.onEndpoint(ctx, job.KindEndpointDisable, func(request job.Request) (job.Accepted, error) {
		return s.endpoints.Disable(ctx, request, endpointsOf(ctx), r.Endpoint)
	})
}

func (s *server) RotateWebhookSecret(ctx context.Context, r operations.RotateWebhookSecretRequestObject) (operations.Answer, error) {
	overlap := defaultOverlap
	if r.Body != nil && r.Body.OverlapSeconds != nil {
		overlap = time.Duration(*r.Body.OverlapSeconds) * time.Second
	}
	var secret string
	answer, err := s.onEndpoint(ctx, job.KindSecretRotate, func(request job.Request) (done job.Accepted, err error) {
		done, secret, err = s.endpoints.Rotate(ctx, request, endpointsOf(ctx), r.Endpoint, overlap)
		return done, err
	})
	if err != nil {
		return nil, err
	}
	return answer.WithSecret(secret)
}

// defaultOverlap is how long a secret signs beside the next one, unless the client says.
const defaultOverlap = 24 * time.Hour

func (s *server) onEndpoint(ctx context.Context, kind job.Kind, do func(request job.Request) (job.Accepted, error)) (response.Result, error) {
	done, err := do(s.command(ctx, kind))
	return s.commandDone(ctx, done, err)
}

// attemptsShown is how many attempts of a delivery are shown: the newest.
const attemptsShown = 100

func (s *server) TestWebhookEndpoint(ctx context.Context, r operations.TestWebhookEndpointRequestObject) (operations.Answer, error) {
	return s.onEndpoint(ctx, job.KindEndpointTest, func(request job.Request) (job.Accepted, error) {
		return s.endpoints.Test(ctx, request, endpointsOf(ctx), r.Endpoint)
	})
}

func (s *server) ReplayWebhookDelivery(ctx context.Context, r operations.ReplayWebhookDeliveryRequestObject) (operations.Answer, error) {
	return s.onEndpoint(ctx, job.KindDeliveryReplay, func(request job.Request) (job.Accepted, error) {
		return s.endpoints.Replay(ctx, request, endpointsOf(ctx), r.Endpoint, r.Event)
	})
}

func (s *server) ReplayWebhookDeliveries(ctx context.Context, r operations.ReplayWebhookDeliveriesRequestObject) (operations.Answer, error) {
	span := webhook.Span{From: r.Body.From, To: r.Body.To, Filter: webhook.Filter{State: webhook.State(response.ValueOf(r.Body.State))}}
	if r.Body.Types != nil {
		span.Types = textsOf(*r.Body.Types)
	}
	return s.onEndpoint(ctx, job.KindDeliveriesReplay, func(request job.Request) (job.Accepted, error) {
		return s.endpoints.ReplaySpan(ctx, request, endpointsOf(ctx), r.Endpoint, span)
	})
}

func (s *server) ListWebhookDeliveries(ctx context.Context, r operations.ListWebhookDeliveriesRequestObject) (operations.Answer, error) {
	e, err := webhook.FindEndpoint(ctx, s.db, endpointsOf(ctx), r.Endpoint)
	if err != nil {
		return nil, err
	}
	filter := webhook.Filter{State: webhook.State(response.ValueOf(r.Params.State))}
	if r.Params.Type != nil {
		filter.Types = []string{string(*r.Params.Type)}
	}
	before, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := webhook.Deliveries(ctx, s.db, e.ID, filter, before, limit+1)
	list, next := response.Cut(list, limit, func(last webhook.Delivery) uuid.UUID { return last.EventID })
	return operations.ListWebhookDeliveries200(contract.WebhookDeliveryPage{Deliveries: response.Documents(list, resource.WebhookDelivery), NextCursor: next}, err)
}

func (s *server) GetWebhookDelivery(ctx context.Context, r operations.GetWebhookDeliveryRequestObject) (operations.Answer, error) {
	e, err := webhook.FindEndpoint(ctx, s.db, endpointsOf(ctx), r.Endpoint)
	if err != nil {
		return nil, err
	}
	found, attempts, err := webhook.GetDelivery(ctx, s.db, e.ID, r.Event, attemptsShown)
	answer, shown := resource.WebhookDelivery(found), resource.WebhookAttempts(attempts, call.Of(ctx).Role)
	answer.Attempts = &shown
	return operations.GetWebhookDelivery200(answer, err)
}

func (s *server) GetWebhookEvent(ctx context.Context, r operations.GetWebhookEventRequestObject) (operations.Answer, error) {
	found, err := webhook.GetEvent(ctx, s.db, endpointsOf(ctx), r.Event)
	return operations.GetWebhookEvent200(resource.WebhookEvent(found), err)
}
