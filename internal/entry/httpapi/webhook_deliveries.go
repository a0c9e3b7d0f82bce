package httpapi

import (
	"context"

	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/service/endpoints"
	"triprize/internal/store/job"
	"triprize/internal/store/webhook"
)

// attemptsShown is how many attempts of a delivery are shown: the newest.
const attemptsShown = 100

// TestWebhookEndpoint sends a test event.
func (s *Server) TestWebhookEndpoint(ctx context.Context, r operations.TestWebhookEndpointRequestObject) (operations.Answer, error) {
	return s.onEndpoint(ctx, job.KindEndpointTest, func(request job.Request, owner string) (job.Accepted, error) {
		return s.endpoints.Test(ctx, request, owner, r.Endpoint)
	})
}

// ReplayWebhookDelivery sends one event again.
func (s *Server) ReplayWebhookDelivery(ctx context.Context, r operations.ReplayWebhookDeliveryRequestObject) (operations.Answer, error) {
	return s.onEndpoint(ctx, job.KindDeliveryReplay, func(request job.Request, owner string) (job.Accepted, error) {
		return s.endpoints.Replay(ctx, request, owner, r.Endpoint, r.Event)
	})
}

// ReplayWebhookDeliveries sends the events of a span again.
func (s *Server) ReplayWebhookDeliveries(ctx context.Context, r operations.ReplayWebhookDeliveriesRequestObject) (operations.Answer, error) {
	span := endpoints.Span{From: r.Body.From, To: r.Body.To, State: webhook.State(response.ValueOf(r.Body.State))}
	if r.Body.Types != nil {
		span.Types = textsOf(*r.Body.Types)
	}
	return s.onEndpoint(ctx, job.KindDeliveriesReplay, func(request job.Request, owner string) (job.Accepted, error) {
		return s.endpoints.ReplaySpan(ctx, request, owner, r.Endpoint, span)
	})
}

// ListWebhookDeliveries answers with one page of what is sent to an endpoint.
func (s *Server) ListWebhookDeliveries(ctx context.Context, r operations.ListWebhookDeliveriesRequestObject) (operations.Answer, error) {
	e, err := s.visibleEndpoint(ctx, r.Endpoint)
	if err != nil {
		return nil, err
	}
	filter := webhook.Filter{State: webhook.State(response.ValueOf(r.Params.State))}
	if r.Params.Type != nil {
		filter.Types = []string{string(*r.Params.Type)}
	}
	before, limit := response.ValueOf(r.Params.Cursor), response.PageSize(r.Params.Limit)
	list, err := webhook.Deliveries(ctx, s.db, e.ID, filter, before, limit)
	return operations.ListWebhookDeliveries200(contract.WebhookDeliveryPage{Deliveries: response.Documents(list, resource.WebhookDelivery),
		NextCursor: response.NextCursor(list, limit, func(last webhook.Delivery) uuid.UUID { return last.EventID })}, err)
}

// GetWebhookDelivery answers with a delivery and its attempts.
func (s *Server) GetWebhookDelivery(ctx context.Context, r operations.GetWebhookDeliveryRequestObject) (operations.Answer, error) {
	e, err := s.visibleEndpoint(ctx, r.Endpoint)
	if err != nil {
		return nil, err
	}
	found, attempts, err := webhook.GetDelivery(ctx, s.db, e.ID, r.Event, attemptsShown)
	answer, shown := resource.WebhookDelivery(found), resource.WebhookAttempts(attempts, call.Of(ctx).Role)
	answer.Attempts = &shown
	return operations.GetWebhookDelivery200(answer, err)
}

// GetWebhookEvent answers with an event that the caller may see.
func (s *Server) GetWebhookEvent(ctx context.Context, r operations.GetWebhookEventRequestObject) (operations.Answer, error) {
	found, err := webhook.GetEvent(ctx, s.db, endpointsOf(ctx), r.Event)
	return operations.GetWebhookEvent200(resource.WebhookEvent(found), err)
}
