package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/client"
)

// What a person reads of each thing.
var (
	jobView = view{"id kind state campaign_id purchase_id user_id accepted_at finished_at attempts problem.code problem.detail problem.retry_at refunds.total refunds.done refunds.waiting " +
		"waiting.reason waiting.retry_at next_action.type next_action.url next_action.decline.code next_action.expires_at purchase.state purchase.amount purchase.amount_refunded",
		"purchase.positions label number layer column price", "purchase.refunds id state amount reason failure", "purchase.timeline at event detail"}
	purchaseView = view{"id state user_id campaign_id amount amount_refunded payment.method payment.reference payment.expires_at payment.decline.code payment.decline.message failure " +
		"cancellation.at cancellation.by cancellation.reason dispute.id dispute.status dispute.reason dispute.amount", "positions label number layer column price",
		"partial_cancellations at by reason amount", "refunds id method amount state reason reference failure waiting_for finished_at", "timeline at event detail"}
	campaignView = view{"id name state paused waiting.reason waiting.count waiting.until positions.total positions.sold positions.reserved positions.blocked positions.available published_at " +
		"sale_starts_at sale_ends_at draws_at draw_started_at draw_completed_at cancelled_at cancelled_by cancel_reason",
		"layers layer label price positions.total positions.sold positions.reserved positions.blocked"}
	drawView  = view{"trust round round_due_at voids_at executed_at", "winners prize name label purchase_id user_id"}
	userViews = []view{{"", "purchases id state campaign_id amount amount_refunded payment.method failure"}, {"", "holds id state campaign_id amount created_at expires_at purchase_id"},
		{"", "wallets id client balance held available"}}
	trailView  = view{"", "audit_trail at operator client key_prefix address via operation target reason before after"}
	failedView = view{"since until complete", "causes code kind count last_at jobs"}
	statusView = view{"state at figures.purchases_per_second figures.refusals_per_second figures.final_p50_ms figures.final_p99_ms figures.workers figures.schedulers figures.leader",
		"checks state name detail since runbook", "figures.backlog kind count age_seconds", "execution_locks campaign_id worker since stale"}
)

// mostOfUser bounds each list of a user.
const mostOfUser = 20

// showCommands return the commands that show one thing.
func showCommands() []*cobra.Command {
	show := func(use, short string, call func(ctx context.Context, api *client.Client, id uuid.UUID) error, views ...view) *cobra.Command {
		return reader(&cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}, views, 1, func(ctx context.Context, api *client.Client, arg string) error {
			id, err := idOf("a "+strings.Fields(use)[0], arg)
			if err != nil {
				return err
			}
			return call(ctx, api, id)
		})
	}
	user := &cobra.Command{Use: "user USER", Short: fmt.Sprintf("Show the newest %d purchases, holds and wallets of a user", mostOfUser), Args: cobra.ExactArgs(1)}
	return []*cobra.Command{
		show("job JOB", "Show a job: its state, what it waits for, and its purchase", func(ctx context.Context, api *client.Client, id uuid.UUID) error {
			return only(api.GetJob(ctx, id, client.GetJobParams{Include: client.WithJobPurchase}))
		}, jobView),
		show("purchase PURCHASE", "Show a purchase: amounts, positions, refunds, timeline, and what its job waits for", func(ctx context.Context, api *client.Client, id uuid.UUID) error {
			p, err := api.GetPurchase(ctx, id, client.GetPurchaseParams{})
			if err == nil {
				_, _ = api.GetJob(ctx, p.JobID, client.GetJobParams{}) // it is gone after its retention
			}
			return err
		}, purchaseView, jobView),
		show("campaign CAMPAIGN", "Show a campaign: positions and prices by layer, and its draw", func(ctx context.Context, api *client.Client, id uuid.UUID) error {
			c, err := api.GetCampaign(ctx, id)
			if err == nil && !c.DrawStartedAt.IsZero() {
				err = only(api.GetDraw(ctx, id))
			}
			return err
		}, campaignView, drawView),
		reader(user, userViews, len(userViews), func(ctx context.Context, api *client.Client, id string) error {
			return cmp.Or(only(api.ListPurchases(ctx, id, client.ListPurchasesParams{Limit: mostOfUser})), only(api.ListUserHolds(ctx, id, client.ListUserHoldsParams{Limit: mostOfUser})),
				only(api.ListWallets(ctx, client.ListWalletsParams{OwnerID: id, Limit: mostOfUser})))
		}),
	}
}

// only drops an answer: its document is shown.
func only[T any](_ T, err error) error { return err }

func statusCommand() *cobra.Command {
	c := &cobra.Command{Use: "status", Short: "Tell whether anything is wrong; status 1 if something is late or broken, 2 if the api does not say", Args: cobra.NoArgs}
	return checks(reader(c, []view{statusView}, 1, func(ctx context.Context, api *client.Client, _ string) error {
		s, err := api.GetStatus(ctx)
		if refused, answered := errors.AsType[*client.Error](err); err != nil && (!answered || refused.Status >= http.StatusInternalServerError) {
			return fmt.Errorf("%w\nWithout the api, run: triprize doctor", err)
		} else if s.State == client.CheckStateLate || s.State == client.CheckStateBroken {
			return &statusError{fmt.Errorf("something is %s", s.State), 1}
		}
		return err
	}))
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
	return reader(c, []view{failedView}, 1, func(ctx context.Context, api *client.Client, _ string) error {
		return only(api.ListFailures(ctx, span))
	})
}

func trailCommand() *cobra.Command {
	c := &cobra.Command{Use: "trail", Short: "List changes by operators, the newest first", Args: cobra.NoArgs}
	target := c.Flags().String("target", "", "only changes of this resource: its id, the prefix of a key, or the name of a sweep")
	limit := c.Flags().Int("limit", 50, "maximum number of changes to list, up to 200")
	return reader(c, []view{trailView}, 1, func(ctx context.Context, api *client.Client, _ string) error {
		return only(api.ListAuditTrail(ctx, client.ListAuditTrailParams{Target: *target, Limit: *limit}))
	})
}
