package cli

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/client"
)

func webhooksCommand() *cobra.Command {
	parent := group("webhooks", "List, create, enable, disable and replay webhook endpoints")
	list := lister(&cobra.Command{Use: "list", Short: "List the endpoints", Args: cobra.NoArgs}, endpointTable,
		func(ctx context.Context, api *client.Client, _ []string) (iter.Seq2[client.WebhookEndpoint, error], error) {
			return api.WebhookEndpoints(ctx, client.ListWebhookEndpointsParams{}), nil
		})
	enable := action{use: "enable ENDPOINT", short: "Enable an endpoint", what: "an endpoint",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, _ string) (any, error) {
			return api.EnableWebhookEndpoint(ctx, id)
		}}
	disable := action{use: "disable ENDPOINT", short: "Disable an endpoint; its pending deliveries fail", what: "an endpoint",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, _ string) (any, error) {
			return api.DisableWebhookEndpoint(ctx, id)
		}}
	deliveries := &cobra.Command{Use: "deliveries ENDPOINT", Short: "List the deliveries of an endpoint, the newest first", Args: cobra.ExactArgs(1)}
	state := deliveries.Flags().String("state", "", "only deliveries that are: pending, delivered or failed")
	lister(deliveries, deliveryTable, func(ctx context.Context, api *client.Client, args []string) (iter.Seq2[client.WebhookDelivery, error], error) {
		id, err := idOf("an endpoint", args[0])
		return api.WebhookDeliveries(ctx, id, client.ListWebhookDeliveriesParams{State: client.WebhookDeliveryState(*state)}), err
	})
	parent.AddCommand(list, createEndpointCommand(), enable.command(), disable.command(), deliveries, replayCommand())
	return parent
}

func createEndpointCommand() *cobra.Command {
	c := &cobra.Command{Use: "create", Short: "Create an endpoint for a client, and print it with its secret once", Args: cobra.NoArgs}
	owner, url := required(c, "client", "client of an API key, whose events are sent"), required(c, "url", "address to which events are sent")
	events := c.Flags().StringSlice("events", nil, "subscribed events, such as purchase.*,campaign.drawn")
	_ = c.MarkFlagRequired("events")
	return onAPI(c, func(cmd *cobra.Command, _ []string, api *client.Client) error {
		draft := client.WebhookEndpointDraft{Client: *owner, URL: *url}
		for _, one := range *events {
			draft.Events = append(draft.Events, client.WebhookFilter(one))
		}
		made, err := api.CreateWebhookEndpoint(cmd.Context(), draft)
		if err != nil {
			return err
		}
		return json.NewEncoder(cmd.OutOrStdout()).Encode(made) //nolint:gosec // the secret is shown once, to who made the endpoint
	})
}

func replayCommand() *cobra.Command {
	var span client.WebhookReplay
	c := action{use: "replay ENDPOINT", short: "Replay the events of a time range, at most the oldest 1,000", what: "an endpoint",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, _ string) (any, error) {
			return api.ReplayWebhookDeliveries(ctx, id, span)
		}}.command()
	from := required(c, "from", "start of the time range, inclusive, such as 2026-07-01T00:00:00Z")
	to := required(c, "to", "end of the time range, exclusive")
	checkID := c.PreRunE
	c.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if span.From, err = time.Parse(time.RFC3339, *from); err == nil {
			span.To, err = time.Parse(time.RFC3339, *to)
		}
		if err != nil {
			return errors.New("--from and --to must be times such as 2026-07-01T00:00:00Z")
		}
		return checkID(cmd, args)
	}
	return c
}

var endpointTable = table[client.WebhookEndpoint]{"endpoints", "ENDPOINT\tCLIENT\tSTATE\tREASON\tFAILING SINCE\tCREATED\tEVENTS\tURL", func(e client.WebhookEndpoint) string {
	events := make([]string, len(e.Events))
	for i, one := range e.Events {
		events[i] = string(one)
	}
	return cells(e.ID, e.Client, e.State, e.DisabledReason, e.FailingSince, e.CreatedAt, strings.Join(events, ","), e.URL)
}}

var deliveryTable = table[client.WebhookDelivery]{"deliveries", "EVENT\tTYPE\tSUBJECT\tSTATE\tATTEMPTS\tAT\tNEXT", func(d client.WebhookDelivery) string {
	return cells(d.EventID, d.Type, d.Subject, d.State, d.AttemptCount, d.At, d.NextAttemptAt)
}}
