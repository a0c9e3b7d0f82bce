package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/webhookhttp"
	"triprize/internal/service/endpoints"
	"triprize/internal/service/webhooks"
	"triprize/internal/store/job"
	"triprize/internal/store/webhook"
)

func webhooksCommand() *cobra.Command {
	parent := group("webhooks", "List the endpoints of apps, make one, disable, enable or replay it")
	parent.AddCommand(listEndpointsCommand(), createEndpointCommand(),
		endpointCommand("enable ENDPOINT", "Have events sent to an endpoint again", job.KindEndpointEnable,
			func(ctx context.Context, s *endpoints.Service, t target) (job.Accepted, error) {
				return s.Enable(ctx, t.request, "", "", t.id)
			}),
		endpointCommand("disable ENDPOINT", "Send nothing to an endpoint any more; what is pending fails", job.KindEndpointDisable,
			func(ctx context.Context, s *endpoints.Service, t target) (job.Accepted, error) {
				return s.Disable(ctx, t.request, "", t.id)
			}),
		listDeliveriesCommand(), replayCommand())
	return parent
}

func listEndpointsCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the endpoints", Args: cobra.NoArgs}
	client := c.Flags().String("client", "", "only those of a client")
	return lister(c, endpointTable, func(ctx context.Context, db *pgxpool.Pool, _ []string, most int) ([]endpointLine, error) {
		list, err := webhook.List(ctx, db, *client, uuid.Nil, most)
		return lines(list, endpointLineOf), err
	})
}

func createEndpointCommand() *cobra.Command {
	c := &cobra.Command{Use: "create", Short: "Make an endpoint for a client, and print its secret, once", Args: cobra.NoArgs}
	file := configFlag(c)
	client := c.Flags().String("client", "", "whose events it hears: the client of an API key")
	url := c.Flags().String("url", "", "where they are sent")
	events := c.Flags().StringSlice("events", nil, "what is sent, such as purchase.*,campaign.drawn")
	for _, name := range []string{"client", "url", "events"} {
		_ = c.MarkFlagRequired(name)
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkText("--client", *client, maxClient); err != nil {
			return err
		}
		for _, one := range *events {
			if !webhook.Known(one) {
				return fmt.Errorf("--events: there are no events %q; such as purchase.completed, purchase.* or *", one)
			}
		}
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool, settings config.Settings) error {
			if settings.Draw.SecretKey == "" {
				return errors.New("setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY): is required, it seals the secrets of endpoints")
			}
			s, err := endpointsOn(db, settings)
			if err != nil {
				return err
			}
			done, secret, err := s.Create(cmd.Context(), requestOf(job.KindEndpointCreate, settings), endpoints.Draft{Client: *client, URL: *url, Events: *events})
			if err := sayDone(cmd.OutOrStdout(), done, err); err != nil {
				return err
			}
			say(cmd.OutOrStdout(), "%s", secret)
			return nil
		})
	}
	return c
}

func endpointCommand(use, short string, kind job.Kind, do func(context.Context, *endpoints.Service, target) (job.Accepted, error)) *cobra.Command {
	return action{use: use, short: short, what: "an endpoint", kind: kind, do: func(ctx context.Context, t target) (job.Accepted, error) {
		s, err := endpointsOn(t.db, t.settings)
		if err != nil {
			return job.Accepted{}, err
		}
		return do(ctx, s, t)
	}}.command()
}

func listDeliveriesCommand() *cobra.Command {
	c := &cobra.Command{Use: "deliveries ENDPOINT", Short: "List what is sent to an endpoint, the newest first", Args: cobra.ExactArgs(1)}
	state := c.Flags().String("state", "", "only those that are: pending, delivered or failed")
	var id uuid.UUID
	c.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if id, err = idOf("an endpoint", args[0]); err != nil {
			return err
		}
		switch webhook.State(*state) {
		case "", webhook.Pending, webhook.Delivered, webhook.Failed:
			return nil
		}
		return errors.New("--state must be pending, delivered or failed")
	}
	return lister(c, deliveryTable, func(ctx context.Context, db *pgxpool.Pool, _ []string, most int) ([]deliveryLine, error) {
		if _, err := endpoints.Find(ctx, db, "", id); err != nil {
			return nil, err
		}
		list, err := webhook.Deliveries(ctx, db, id, webhook.Filter{State: webhook.State(*state)}, uuid.Nil, most)
		return lines(list, deliveryLineOf), err
	})
}

func replayCommand() *cobra.Command {
	var span endpoints.Span
	c := endpointCommand("replay ENDPOINT", fmt.Sprintf("Send the events of a span of time again, the oldest %d at most", endpoints.MostReplayed), job.KindDeliveriesReplay,
		func(ctx context.Context, s *endpoints.Service, t target) (job.Accepted, error) {
			return s.ReplaySpan(ctx, t.request, "", t.id, span)
		})
	from := c.Flags().String("from", "", "events from this time on, such as 2026-07-01T00:00:00Z")
	to := c.Flags().String("to", "", "events before this time")
	for _, name := range []string{"from", "to"} {
		_ = c.MarkFlagRequired(name)
	}
	c.PreRunE = func(*cobra.Command, []string) (err error) {
		if span.From, err = time.Parse(time.RFC3339, *from); err == nil {
			span.To, err = time.Parse(time.RFC3339, *to)
		}
		if err != nil {
			return errors.New("--from and --to must be times such as 2026-07-01T00:00:00Z")
		}
		return nil
	}
	return c
}

// endpointsOn returns a service that can make an endpoint only where there is a key for its secret.
func endpointsOn(db *pgxpool.Pool, settings config.Settings) (*endpoints.Service, error) {
	var keys keyring.Keyring
	if settings.Draw.SecretKey != "" {
		var err error
		if keys, err = keyring.Parse(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys); err != nil {
			return nil, err
		}
	}
	guard, err := webhookhttp.NewGuard(settings.Webhooks.AllowNetworks)
	if err != nil {
		return nil, err
	}
	return endpoints.New(db, func(id uuid.UUID, secret string) []byte { return webhooks.Seal(keys, id, secret) }, endpoints.Most, guard, endpoints.Documents{
		Endpoint: func(e webhook.Endpoint, _ []webhook.Secret) any { return endpointLineOf(e) },
		Delivery: func(d webhook.Delivery) any { return deliveryLineOf(d) },
		Replayed: func(r endpoints.Replayed) any {
			return map[string]any{"replayed": r.Count, "more": r.More, "until": r.Until}
		},
	}), nil
}

// endpointLine is an endpoint as this tool prints it.
type endpointLine struct {
	ID             uuid.UUID       `json:"id"`
	Client         string          `json:"client"`
	URL            string          `json:"url"`
	Events         []string        `json:"events"`
	VerifiedAt     *time.Time      `json:"verified_at"`
	DisabledAt     *time.Time      `json:"disabled_at"`
	DisabledReason *webhook.Reason `json:"disabled_reason"`
	FailingSince   *time.Time      `json:"failing_since"`
	CreatedAt      time.Time       `json:"created_at"`
}

func endpointLineOf(e webhook.Endpoint) endpointLine {
	return endpointLine{ID: e.ID, Client: e.Client, URL: e.URL, Events: e.Events, VerifiedAt: e.VerifiedAt, DisabledAt: e.DisabledAt, DisabledReason: e.DisabledReason,
		FailingSince: e.FailingSince, CreatedAt: e.CreatedAt}
}

// state is the state of an endpoint for people.
func (l endpointLine) state() string {
	switch {
	case l.DisabledReason != nil:
		return "disabled: " + string(*l.DisabledReason)
	case l.VerifiedAt == nil:
		return "unverified"
	case l.FailingSince != nil:
		return "failing since " + l.FailingSince.Format(time.DateTime)
	}
	return "enabled"
}

var endpointTable = table[endpointLine]{"endpoints", "ENDPOINT\tCLIENT\tSTATE\tCREATED\tEVENTS\tURL", func(l endpointLine) string {
	return cells(l.ID, &l.Client, l.state(), l.CreatedAt, strings.Join(l.Events, ","), l.URL)
}}

// deliveryLine is a delivery as this tool prints it.
type deliveryLine struct {
	EventID    uuid.UUID     `json:"event_id"`
	Type       string        `json:"type"`
	Subject    uuid.UUID     `json:"subject"`
	State      webhook.State `json:"state"`
	Attempts   int           `json:"attempt_count"`
	NextAt     *time.Time    `json:"next_attempt_at"`
	At         time.Time     `json:"at"`
	FinishedAt *time.Time    `json:"finished_at"`
}

func deliveryLineOf(d webhook.Delivery) deliveryLine {
	return deliveryLine{EventID: d.EventID, Type: d.Type, Subject: d.Subject, State: d.State, Attempts: d.Attempts, NextAt: d.NextAt, At: d.At, FinishedAt: d.FinishedAt}
}

var deliveryTable = table[deliveryLine]{"deliveries", "EVENT\tTYPE\tSUBJECT\tSTATE\tATTEMPTS\tAT\tNEXT", func(l deliveryLine) string {
	next := "-"
	if l.NextAt != nil {
		next = l.NextAt.Format(time.DateTime)
	}
	return cells(l.EventID, l.Type, l.Subject, l.State, l.Attempts, l.At, next)
}}
