package httpapi

import (
	"context"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/contract/operations"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/service/endpoints"
	"triprize/internal/store/job"
	"triprize/internal/store/webhook"
)

// attemptsShown is how many attempts of a delivery are shown: the newest.
const attemptsShown = 100

// TestWebhookEndpoint sends a test event.
func (s handlers) TestWebhookEndpoint(ctx context.Context, r operations.TestWebhookEndpointRequestObject) (operations.TestWebhookEndpointResponseObject, error) {
	return s.onEndpoint(ctx, job.KindEndpointTest, func(request job.Request, owner string) (job.Accepted, error) {
		return s.endpoints.Test(ctx, request, owner, r.Endpoint)
	})
}

// ReplayWebhookDelivery sends one event again.
func (s handlers) ReplayWebhookDelivery(ctx context.Context, r operations.ReplayWebhookDeliveryRequestObject) (operations.ReplayWebhookDeliveryResponseObject, error) {
	return s.onEndpoint(ctx, job.KindDeliveryReplay, func(request job.Request, owner string) (job.Accepted, error) {
		return s.endpoints.Replay(ctx, request, owner, r.Endpoint, r.Event)
	})
}

// ReplayWebhookDeliveries sends the events of a span again.
func (s handlers) ReplayWebhookDeliveries(ctx context.Context, r operations.ReplayWebhookDeliveriesRequestObject) (operations.ReplayWebhookDeliveriesResponseObject, error) {
	span := endpoints.Span{From: r.Body.From, To: r.Body.To}
	if r.Body.Types != nil {
		span.Types = textsOf(*r.Body.Types)
	}
	if r.Body.State != nil {
		span.State = webhook.State(*r.Body.State)
	}
	return s.onEndpoint(ctx, job.KindDeliveriesReplay, func(request job.Request, owner string) (job.Accepted, error) {
		return s.endpoints.ReplaySpan(ctx, request, owner, r.Endpoint, span)
	})
}

// ListWebhookDeliveries answers with one page of what is sent to an endpoint.
func (s handlers) ListWebhookDeliveries(ctx context.Context, r operations.ListWebhookDeliveriesRequestObject) (operations.ListWebhookDeliveriesResponseObject, error) {
	e, err := s.visibleEndpoint(ctx, r.Endpoint)
	if err != nil {
		return nil, err
	}
	var filter webhook.Filter
	if r.Params.State != nil {
		filter.State = webhook.State(*r.Params.State)
	}
	if r.Params.Type != nil {
		filter.Types = []string{string(*r.Params.Type)}
	}
	var before uuid.UUID
	if r.Params.Cursor != nil {
		before = *r.Params.Cursor
	}
	limit := pageSize(r.Params.Limit)
	list, err := webhook.Deliveries(ctx, s.db, e.ID, filter, before, limit)
	if err != nil {
		return nil, err
	}
	answer := contract.WebhookDeliveryPage{Deliveries: make([]contract.WebhookDelivery, len(list))}
	for i, d := range list {
		answer.Deliveries[i] = resource.WebhookDelivery(d)
	}
	answer.NextCursor = nextCursor(len(list), limit, func() uuid.UUID { return list[len(list)-1].EventID })
	return operations.ListWebhookDeliveries200JSONResponse{Body: answer}, nil
}

// GetWebhookDelivery answers with a delivery and its attempts.
func (s handlers) GetWebhookDelivery(ctx context.Context, r operations.GetWebhookDeliveryRequestObject) (operations.GetWebhookDeliveryResponseObject, error) {
	e, err := s.visibleEndpoint(ctx, r.Endpoint)
	if err != nil {
		return nil, err
	}
	found, attempts, err := webhook.GetDelivery(ctx, s.db, e.ID, r.Event, attemptsShown)
	if err != nil {
		return nil, err
	}
	answer, shown := resource.WebhookDelivery(found), resource.WebhookAttempts(attempts)
	answer.Attempts = &shown
	return operations.GetWebhookDelivery200JSONResponse{Body: answer}, nil
}

// GetWebhookEvent answers with an event that the caller may see.
func (s handlers) GetWebhookEvent(ctx context.Context, r operations.GetWebhookEventRequestObject) (operations.GetWebhookEventResponseObject, error) {
	owner, err := endpointsOf(ctx)
	if err != nil {
		return nil, err
	}
	found, err := webhook.GetEvent(ctx, s.db, owner, r.Event)
	if err != nil {
		return nil, err
	}
	return operations.GetWebhookEvent200JSONResponse{Body: resource.WebhookEvent(found)}, nil
}

// VisitCreateWebhookEndpointResponse implements operations.CreateWebhookEndpointResponseObject.
func (a commandAnswer) VisitCreateWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitEnableWebhookEndpointResponse implements operations.EnableWebhookEndpointResponseObject.
func (a commandAnswer) VisitEnableWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitDisableWebhookEndpointResponse implements operations.DisableWebhookEndpointResponseObject.
func (a commandAnswer) VisitDisableWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitRotateWebhookSecretResponse implements operations.RotateWebhookSecretResponseObject.
func (a commandAnswer) VisitRotateWebhookSecretResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitTestWebhookEndpointResponse implements operations.TestWebhookEndpointResponseObject.
func (a commandAnswer) VisitTestWebhookEndpointResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitReplayWebhookDeliveryResponse implements operations.ReplayWebhookDeliveryResponseObject.
func (a commandAnswer) VisitReplayWebhookDeliveryResponse(c *fiber.Ctx) error { return a.send(c) }

// VisitReplayWebhookDeliveriesResponse implements operations.ReplayWebhookDeliveriesResponseObject.
func (a commandAnswer) VisitReplayWebhookDeliveriesResponse(c *fiber.Ctx) error { return a.send(c) }
