package console

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/fault"
)

// endpointActions are the commands about an endpoint. Their paths are relative to its page, and their names are of what is said afterwards.
var endpointActions = []action{
	{Path: "/test", Title: "Send a test event", Text: "It goes to this endpoint only, whatever it subscribes to.", Fields: []field{reason}},
	{Path: "/replay", Title: "Replay events", Text: "Events since then are sent again, with the same id and body. Repair the receiver first.", Fields: []field{
		{Name: "/from", Label: "Since, UTC", Type: "datetime-local", Required: true},
		{Name: "/state", Label: "Only those that", Hint: "missed: while the endpoint was disabled", Type: "select", Options: []string{"failed", "missed", "delivered"}}, reason}},
	{Path: "/enable", Title: "Enable the endpoint", Text: "It gets what happens from now on; what it has missed can be replayed. It is your key's from then on: revoking that key disables it.", Fields: []field{reason}},
	{Path: "/disable", Title: "Disable the endpoint", Text: "Events that wait fail, and it misses new ones. Both can be replayed when it is enabled again.", Danger: true, Fields: []field{reason}},
	{Path: "/again/:event", Title: "Replay the event", Text: "It is sent again, with the same id and body, even if it was delivered.", Fields: []field{reason}},
}

// doOnEndpoint carries out a command, by its name. ids are those of the endpoint and the event.
func doOnEndpoint(ctx context.Context, api *client.Client, name string, ids []uuid.UUID, typed *form, options ...client.CallOption) (err error) {
	switch name {
	case "test":
		_, err = api.TestWebhookEndpoint(ctx, ids[0], options...)
	case "replay": // without an end, so that a form that is sent twice is one request: there are no events after now
		span := client.WebhookReplay{From: typed.time("/from"), To: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), State: client.WebhookReplayState(typed.text("/state"))}
		if len(typed.Faults) == 0 {
			_, err = api.ReplayWebhookDeliveries(ctx, ids[0], span, options...)
		}
	case "enable":
		_, err = api.EnableWebhookEndpoint(ctx, ids[0], options...)
	case "disable":
		_, err = api.DisableWebhookEndpoint(ctx, ids[0], options...)
	case "again":
		_, err = api.ReplayWebhookDelivery(ctx, ids[0], ids[1], options...)
	}
	return err
}

// idsOf parses ids with a slash between them.
func idsOf(argument string) (ids []uuid.UUID, err error) {
	for text := range strings.SplitSeq(argument, "/") {
		id, err := uuid.Parse(text)
		if err != nil {
			return nil, fault.New(fault.NotFound, "%q is not an id", text)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// mountWebhooks registers the pages of endpoints and their deliveries, and the commands about them.
func (c *console) mountWebhooks(r fiber.Router) {
	c.livePage(r, "/webhooks", "webhooks", "", "Webhooks", func(ctx context.Context, api *client.Client, _ string) (any, error) {
		return api.ListWebhookEndpoints(ctx, client.ListWebhookEndpointsParams{Limit: 200})
	}, nil)
	c.livePage(r, "/webhooks/:endpoint", "webhook", "endpoint?state&cursor", "Webhook endpoint", readEndpoint, nil)
	c.livePage(r, "/webhooks/:endpoint/delivery", "delivery", "endpoint?event", "Webhook delivery", func(ctx context.Context, api *client.Client, argument string) (any, error) {
		endpoint, event, _ := strings.Cut(argument, "?event=")
		ids, err := idsOf(endpoint + "/" + event)
		if err != nil {
			return nil, err
		}
		return api.GetWebhookDelivery(ctx, ids[0], ids[1])
	}, nil)
	for _, one := range endpointActions {
		name := strings.Split(one.Path, "/")[1]
		c.act(r, "/webhooks/:endpoint"+one.Path, name, func(f *fiber.Ctx) (action, command, error) {
			ids, err := idsOf(strings.TrimSuffix(f.Params("endpoint")+"/"+f.Params("event"), "/"))
			a := one
			a.Path, a.Back = f.Path(), Path+"/webhooks/"+f.Params("endpoint")
			return a, func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
				return doOnEndpoint(ctx, api, name, ids, typed, options...)
			}, err
		})
	}
}

// readEndpoint reads an endpoint and a page of its deliveries.
func readEndpoint(ctx context.Context, api *client.Client, argument string) (any, error) {
	id, query, _ := strings.Cut(argument, "?")
	asked, _ := url.ParseQuery(query) // it was made of values
	ids, err := idsOf(strings.TrimSuffix(id+"/"+asked.Get("cursor"), "/"))
	if err != nil {
		return nil, err
	}
	endpoint, err := api.GetWebhookEndpoint(ctx, ids[0])
	if err != nil {
		return nil, err
	}
	state := asked.Get("state")
	page, err := api.ListWebhookDeliveries(ctx, ids[0], client.ListWebhookDeliveriesParams{State: client.WebhookDeliveryState(state), Cursor: append(ids, uuid.Nil)[1], Limit: 50})
	return fiber.Map{"Endpoint": endpoint, "Page": page, "State": state, "Older": page.NextCursor != uuid.Nil, "States": []string{"", "pending", "failed", "delivered"}}, err
}
