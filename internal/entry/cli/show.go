package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"triprize.example/client"
)

// maxOfUser bounds each list of a user.
const maxOfUser = 20

// showCommands return the commands that show one thing.
func showCommands() []*cobra.Command {
	show := func(use, short string, call func(ctx context.Context, api *client.Client, id uuid.UUID) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
		return reader(c, writeYAML, func(ctx context.Context, api *client.Client, arg string) error {
			id, err := idOf("a "+strings.Fields(use)[0], arg)
			if err != nil {
				return err
			}
			return call(ctx, api, id)
		})
	}
	user := &cobra.Command{Use: "user USER", Short: fmt.Sprintf("Show the newest %d purchases, holds and wallets of a user", maxOfUser), Args: cobra.ExactArgs(1)}
	return []*cobra.Command{
		show("job JOB", "Show a job: its state, what it waits for, and its purchase", func(ctx context.Context, api *client.Client, id uuid.UUID) error {
			return only(api.GetJob(ctx, id, client.GetJobParams{Include: client.WithJobPurchase}))
		}),
		show("purchase PURCHASE", "Show a purchase: amounts, positions, refunds, timeline, and its job", func(ctx context.Context, api *client.Client, id uuid.UUID) error {
			p, err := api.GetPurchase(ctx, id, client.GetPurchaseParams{})
			if err == nil {
				_, _ = api.GetJob(ctx, p.JobID, client.GetJobParams{}) // it is gone after its retention
			}
			return err
		}),
		show("campaign CAMPAIGN", "Show a campaign: positions and prices by layer, and its draw", func(ctx context.Context, api *client.Client, id uuid.UUID) error {
			c, err := api.GetCampaign(ctx, id)
			if err == nil && !c.DrawStartedAt.IsZero() {
				err = only(api.GetDraw(ctx, id))
			}
			return err
		}),
		reader(user, writeYAML, func(ctx context.Context, api *client.Client, id string) error {
			return cmp.Or(only(api.ListPurchases(ctx, id, client.ListPurchasesParams{Limit: maxOfUser})),
				only(api.ListUserHolds(ctx, id, client.ListUserHoldsParams{Limit: maxOfUser})),
				only(api.ListWallets(ctx, client.ListWalletsParams{OwnerID: id, Limit: maxOfUser})))
		}),
	}
}

// only drops an answer: its document is shown.
func only[T any](_ T, err error) error { return err }

func statusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Tell whether anything is wrong; status 1 if something is unknown, a warning or critical, 2 if the api does not say", Args: cobra.NoArgs}
	return checks(reader(c, writeStatus, func(ctx context.Context, api *client.Client, _ string) error {
		s, err := api.GetStatus(ctx)
		if refused, answered := errors.AsType[*client.Error](err); err != nil && (!answered || refused.Status >= http.StatusInternalServerError) {
			return fmt.Errorf("%w\nWithout the api, run: triprize doctor", err)
		} else if err == nil && s.State != client.CheckStateOk {
			return &statusError{fmt.Errorf("the state is %s", s.State), 1}
		}
		return err
	}))
}

// writeStatus writes what the page Now shows.
func writeStatus(out io.Writer, document []byte) error {
	var s client.Status
	if err := json.Unmarshal(document, &s); err != nil {
		return err
	}
	figure := func(value *float64) string {
		if value == nil {
			return "-"
		}
		return fmt.Sprint(*value)
	}
	f := s.Figures
	say(out, "%s: %s purchases/s, %s refusals/s, final after %s ms (p99); leader %s\n",
		s.State, figure(f.PurchasesPerSecond), figure(f.RefusalsPerSecond), figure(f.FinalP99Ms), cell(f.Leader))
	checks := table[client.StatusCheck]{head: "STATE\tCHECK\tDETAIL\tSINCE\tRUNBOOK", row: func(c client.StatusCheck) string {
		return cells(c.State, c.Name, c.Detail, c.Since, c.Runbook)
	}}
	backlog := table[client.Backlog]{head: "\nWAITING\tCOUNT\tOLDEST", row: func(b client.Backlog) string {
		return cells(b.Kind, b.Count, fmt.Sprintf("%.0f s", b.AgeSeconds))
	}}
	return cmp.Or(checks.print(out, s.Checks, false), backlog.print(out, f.Backlog, false))
}

func failedCommand() *cobra.Command {
	c := &cobra.Command{Use: "failed", Short: "List what failed by a fault of the installation, by cause, in a span of at most seven days", Args: cobra.NoArgs}
	var span client.ListFailuresParams
	for name, at := range map[string]*time.Time{"since": &span.Since, "until": &span.Until} {
		c.Flags().Func(name, "how long ago the span begins (default: 1h) and ends (now), or a `time` such as 2026-11-01T09:00:00Z", func(text string) (err error) {
			if ago, no := time.ParseDuration(text); no == nil {
				*at = time.Now().Add(-ago).UTC()
				return nil
			}
			*at, err = momentOf("--"+name, text)
			return err
		})
	}
	return reader(c, writeYAML, func(ctx context.Context, api *client.Client, _ string) error {
		return only(api.ListFailures(ctx, span))
	})
}

// maxBytes is the bound of an answer that package client has by default.
const maxBytes = 64 << 20

// answers has the documents of an api as they are: where they have null, the client's types have zeros.
type answers [][]byte

// RoundTrip makes answers an http.RoundTripper.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	defer func() { _ = response.Body.Close() }()
	document, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1)) // more is refused by the client
	if err != nil {
		return nil, err
	}
	*a, response.Body = append(*a, document), io.NopCloser(bytes.NewReader(document))
	return response, nil
}

// reader makes c a command that makes calls, and writes the documents of their answers, or prints them as JSON, a line each.
func reader(c *cobra.Command, write func(out io.Writer, document []byte) error, call func(ctx context.Context, api *client.Client, arg string) error) *cobra.Command {
	asJSON, got := c.Flags().Bool("json", false, "print JSON, a line for each document"), new(answers)
	twice := client.WithRetry(client.RetryPolicy{Attempts: 2}) // a person waits, perhaps before an outage, or a monitor
	return onAPI(c, func(cmd *cobra.Command, args []string, api *client.Client) error {
		err := call(cmd.Context(), api, strings.Join(args, ""))
		if _, decided := errors.AsType[*statusError](err); err != nil && !decided {
			return err
		}
		for i, document := range *got {
			if *asJSON {
				say(cmd.OutOrStdout(), "%s", bytes.TrimSpace(document))
				continue
			}
			if i > 0 {
				say(cmd.OutOrStdout(), "---")
			}
			err = cmp.Or(write(cmd.OutOrStdout(), document), err)
		}
		return err
	}, twice, client.WithTimeout(10*time.Second), client.WithHTTPClient(&http.Client{Transport: got}))
}

// writeYAML writes a document as YAML.
func writeYAML(out io.Writer, document []byte) error {
	var root yaml.Node // JSON is YAML, but for rare characters
	if err := yaml.Unmarshal(document, &root); err != nil {
		_, err = out.Write(document)
		return err
	}
	unfold(&root, "")
	text, err := yaml.Marshal(&root)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// amounts are the members that are in minor units of the nearest currency around them.
var amounts = []string{"amount", "amount_refunded", "available", "balance", "held", "price"}

// unfold lets a document have a line for each value, leaves out what is null, and adds to amounts what they are in words.
func unfold(n *yaml.Node, currency string) {
	n.Style = 0
	if n.Kind == yaml.MappingNode {
		var members []*yaml.Node
		for member := range slices.Chunk(n.Content, 2) {
			if member[0].Value == "currency" {
				currency = member[1].Value
			}
			if member[1].Tag != "!!null" {
				members = append(members, member...)
			}
		}
		n.Content = members
	}
	for i, inner := range n.Content {
		name, of := "", currency
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			name = n.Content[i-1].Value
		}
		var amount int64
		if slices.Contains(amounts, name) && inner.Decode(&amount) == nil {
			inner.LineComment = amountOf(amount, currency)
		}
		if name == "positions" && inner.Kind == yaml.MappingNode { // counts
			of = ""
		}
		unfold(inner, of)
	}
}
