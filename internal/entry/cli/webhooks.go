package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/uuidv7"
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
			func(ctx context.Context, s *endpoints.Service, r job.Request, id uuid.UUID) (job.Accepted, error) {
				return s.Enable(ctx, r, "", id)
			}),
		endpointCommand("disable ENDPOINT", "Send nothing to an endpoint any more; what is pending fails", job.KindEndpointDisable,
			func(ctx context.Context, s *endpoints.Service, r job.Request, id uuid.UUID) (job.Accepted, error) {
				return s.Disable(ctx, r, "", id)
			}),
		listDeliveriesCommand(), replayCommand())
	return parent
}

func listEndpointsCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the endpoints", Args: cobra.NoArgs}
	flags := listingFlags(c, "endpoints")
	client := c.Flags().String("client", "", "only those of a client")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		return withDatabase(cmd.Context(), *flags.file, func(db *pgxpool.Pool) error {
			list, err := webhook.List(cmd.Context(), db, *client, uuid.Nil, flags.more())
			if err != nil {
				return err
			}
			return printEndpoints(cmd.OutOrStdout(), cut(list, *flags.limit, cmd.ErrOrStderr()), *flags.asJSON)
		})
	}
	return c
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
		return withEndpoints(cmd.Context(), *file, job.KindEndpointCreate, func(s *endpoints.Service, r job.Request) error {
			done, secret, err := s.Create(cmd.Context(), r, endpoints.Draft{Client: *client, URL: *url, Events: *events})
			if err == nil && done.Job.Problem != nil {
				err = done.Job.Problem.Err()
			}
			if err != nil {
				return err
			}
			say(cmd.OutOrStdout(), "%s\n%s", done.Job.Result, secret)
			return nil
		})
	}
	return c
}

// maxClient is the longest name of a client, in characters.
const maxClient = 255

func endpointCommand(use, short string, kind job.Kind, do func(context.Context, *endpoints.Service, job.Request, uuid.UUID) (job.Accepted, error)) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
	file := configFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return command(cmd, *file, args[0], "endpoint", kind, func(ctx context.Context, db *pgxpool.Pool, settings config.Settings, r job.Request, id uuid.UUID) (job.Accepted, error) {
			s, err := endpointsOn(db, settings)
			if err != nil {
				return job.Accepted{}, err
			}
			return do(ctx, s, r, id)
		})
	}
	return c
}

func listDeliveriesCommand() *cobra.Command {
	c := &cobra.Command{Use: "deliveries ENDPOINT", Short: "List what is sent to an endpoint, the newest first", Args: cobra.ExactArgs(1)}
	flags := listingFlags(c, "deliveries")
	state := c.Flags().String("state", "", "only those that are: pending, delivered or failed")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := uuid.Parse(args[0])
		if err != nil {
			return fmt.Errorf("%q is not the id of an endpoint", args[0])
		}
		switch webhook.State(*state) {
		case "", webhook.Pending, webhook.Delivered, webhook.Failed:
		default:
			return errors.New("--state must be pending, delivered or failed")
		}
		if err := flags.check(); err != nil {
			return err
		}
		return withDatabase(cmd.Context(), *flags.file, func(db *pgxpool.Pool) error {
			if _, err := endpoints.Find(cmd.Context(), db, "", id); err != nil {
				return err
			}
			list, err := webhook.Deliveries(cmd.Context(), db, id, webhook.Filter{State: webhook.State(*state)}, uuid.Nil, flags.more())
			if err != nil {
				return err
			}
			return printDeliveries(cmd.OutOrStdout(), cut(list, *flags.limit, cmd.ErrOrStderr()), *flags.asJSON)
		})
	}
	return c
}

func replayCommand() *cobra.Command {
	var span endpoints.Span
	c := endpointCommand("replay ENDPOINT", fmt.Sprintf("Send the events of a span of time again, the oldest %d at most", endpoints.MostReplayed), job.KindDeliveriesReplay,
		func(ctx context.Context, s *endpoints.Service, r job.Request, id uuid.UUID) (job.Accepted, error) {
			return s.ReplaySpan(ctx, r, "", id, span)
		})
	from := c.Flags().String("from", "", "events from this time on, such as 2026-07-01T00:00:00Z")
	to := c.Flags().String("to", "", "events before this time")
	for _, name := range []string{"from", "to"} {
		_ = c.MarkFlagRequired(name)
	}
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if span.From, err = time.Parse(time.RFC3339, *from); err == nil {
			span.To, err = time.Parse(time.RFC3339, *to)
		}
		if err != nil {
			return errors.New("--from and --to must be times such as 2026-07-01T00:00:00Z")
		}
		return run(cmd, args)
	}
	return c
}

// withEndpoints calls do with a service, and the request of one command.
func withEndpoints(ctx context.Context, file string, kind job.Kind, do func(*endpoints.Service, job.Request) error) error {
	settings, err := config.Load(file)
	if err != nil {
		return err
	}
	return withDatabase(ctx, file, func(db *pgxpool.Pool) error {
		s, err := endpointsOn(db, settings)
		if err != nil {
			return err
		}
		return do(s, job.Request{ID: uuidv7.New(), Client: cliClient, Key: uuid.NewString(), Kind: kind, Keep: settings.Retention.Jobs})
	})
}

func endpointsOn(db *pgxpool.Pool, settings config.Settings) (*endpoints.Service, error) {
	if settings.Draw.SecretKey == "" {
		return nil, errors.New("setting draw.secret_key (TRIPRIZE_DRAW_SECRET_KEY): is required, it seals the secrets of endpoints")
	}
	keys, err := keyring.Parse(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys)
	if err != nil {
		return nil, err
	}
	guard, err := webhookhttp.NewGuard(settings.Webhooks.AllowNetworks)
	if err != nil {
		return nil, err
	}
	return endpoints.New(db, func(id uuid.UUID, secret string) []byte { return webhooks.Seal(keys, id, secret) }, settings.Webhooks.MaxEndpoints, guard.CheckURL, endpoints.Documents{
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
	URL            *string         `json:"url"`
	Events         []string        `json:"events"`
	DisabledAt     *time.Time      `json:"disabled_at"`
	DisabledReason *webhook.Reason `json:"disabled_reason"`
	FailingSince   *time.Time      `json:"failing_since"`
	CreatedAt      time.Time       `json:"created_at"`
}

func endpointLineOf(e webhook.Endpoint) endpointLine {
	return endpointLine{ID: e.ID, Client: e.Client, URL: e.URL, Events: e.Events, DisabledAt: e.DisabledAt, DisabledReason: e.DisabledReason,
		FailingSince: e.FailingSince, CreatedAt: e.CreatedAt}
}

// state is the state of an endpoint for people.
func (l endpointLine) state() string {
	switch {
	case l.DisabledReason != nil:
		return "disabled: " + string(*l.DisabledReason)
	case l.FailingSince != nil:
		return "failing since " + l.FailingSince.Format(time.DateTime)
	}
	return "enabled"
}

func printEndpoints(out io.Writer, list []webhook.Endpoint, asJSON bool) error {
	lines := make([]endpointLine, len(list))
	for i, e := range list {
		lines[i] = endpointLineOf(e)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"endpoints": lines})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ENDPOINT\tCLIENT\tSTATE\tCREATED\tEVENTS\tURL")
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, cell(&l.Client), l.state(), l.CreatedAt.Format(time.DateTime), strings.Join(l.Events, ","), cell(l.URL))
	}
	return table.Flush()
}

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

func printDeliveries(out io.Writer, list []webhook.Delivery, asJSON bool) error {
	lines := make([]deliveryLine, len(list))
	for i, d := range list {
		lines[i] = deliveryLineOf(d)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"deliveries": lines})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "EVENT\tTYPE\tSUBJECT\tSTATE\tATTEMPTS\tAT\tNEXT")
	for _, l := range lines {
		next := "-"
		if l.NextAt != nil {
			next = l.NextAt.Format(time.DateTime)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", l.EventID, l.Type, l.Subject, l.State, l.Attempts, l.At.Format(time.DateTime), next)
	}
	return table.Flush()
}
