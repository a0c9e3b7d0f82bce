package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/key"
	"triprize/internal/trail"
)

// pageSize is how many entries a page of a list has.
const pageSize = 50

// mountPages registers the pages that show things.
func (c *console) mountPages(r fiber.Router) {
	c.livePage(r, "/now", "now", "Now", func(ctx context.Context, api *client.Client, _ uuid.UUID, _ url.Values) (any, error) {
		status, err1 := api.GetStatus(ctx)
		sweeps, err2 := api.ListSweeps(ctx)
		ok := slices.IndexFunc(status.Checks, func(c client.StatusCheck) bool { return c.State == client.CheckStateOk }) // they are the last
		if ok < 0 {
			ok = len(status.Checks)
		}
		return struct {
			client.Status
			Others, OK []client.StatusCheck
			Sweeps     []client.Sweep
		}{status, status.Checks[:ok], status.Checks[ok:], sweeps.Sweeps}, errors.Join(err1, err2)
	})
	r.Get("/now/curves", func(f *fiber.Ctx) error { return f.JSON(c.Curves.all()) })

	c.livePage(r, "/campaigns", "campaigns", "Campaigns", func(ctx context.Context, api *client.Client, _ uuid.UUID, query url.Values) (any, error) {
		state := query.Get("state")
		page, err := api.ListCampaigns(ctx, client.ListCampaignsParams{State: client.CampaignState(state), Cursor: pathID(query.Get("cursor")), Limit: pageSize})
		return struct {
			client.CampaignPage
			State string
		}{page, state}, err
	})
	c.livePage(r, "/campaigns/:id", "campaign", "Campaign", readCampaign)
	r.Get("/campaigns/:id/board", readBoard)

	c.livePage(r, "/purchases/:id", "purchase", "Purchase", c.readPurchase)
	c.livePage(r, "/jobs/:id", "job", "Job", func(ctx context.Context, api *client.Client, id uuid.UUID, _ url.Values) (any, error) {
		return api.GetJob(ctx, id, client.GetJobParams{})
	})
	c.livePage(r, "/wallets/:id", "wallet", "Wallet", func(ctx context.Context, api *client.Client, id uuid.UUID, query url.Values) (any, error) {
		wallet, err1 := api.GetWallet(ctx, id)
		history, err2 := api.ListWalletEvents(ctx, id, client.ListWalletEventsParams{Cursor: query.Get("cursor"), Limit: pageSize})
		return struct {
			client.Wallet
			History client.WalletEventPage
		}{wallet, history}, errors.Join(err1, err2)
	})
	c.livePage(r, "/waiting", "waiting", "Waiting", func(ctx context.Context, api *client.Client, _ uuid.UUID, _ url.Values) (any, error) {
		payments, err1 := api.ListPayments(ctx, client.ListPaymentsParams{Limit: 100})
		refunds, err2 := api.ListWaitingRefunds(ctx, client.ListWaitingRefundsParams{WaitingFor: client.RefundsWaitingForOperator, Limit: 100})
		differences, err3 := api.ListPaymentDiscrepancies(ctx, client.ListPaymentDiscrepanciesParams{State: client.PaymentDiscrepancyStateOpen, Limit: 100})
		approvals, err4 := api.ListApprovals(ctx, client.ListApprovalsParams{State: client.ApprovalStatePending, Limit: 100})
		return fiber.Map{"Payments": payments, "Refunds": refunds, "Differences": differences, "Approvals": approvals}, errors.Join(err1, err2, err3, err4)
	})

	c.livePage(r, "/webhooks", "webhooks", "Webhooks", func(ctx context.Context, api *client.Client, _ uuid.UUID, _ url.Values) (any, error) {
		return api.ListWebhookEndpoints(ctx, client.ListWebhookEndpointsParams{Limit: 200})
	})
	c.livePage(r, "/webhooks/:id", "webhook", "Webhook endpoint", func(ctx context.Context, api *client.Client, id uuid.UUID, query url.Values) (any, error) {
		state := client.WebhookDeliveryState(query.Get("state"))
		endpoint, err1 := api.GetWebhookEndpoint(ctx, id)
		deliveries, err2 := api.ListWebhookDeliveries(ctx, id, client.ListWebhookDeliveriesParams{State: state, Cursor: pathID(query.Get("cursor")), Limit: pageSize})
		known, err3 := c.lookUp(ctx, id.String(), "webhook endpoint")
		return fiber.Map{"Endpoint": endpoint, "Page": deliveries, "State": state, "Known": known}, errors.Join(err1, err2, err3)
	})
	c.livePage(r, "/webhooks/:id/delivery", "delivery", "Webhook delivery", func(ctx context.Context, api *client.Client, id uuid.UUID, query url.Values) (any, error) {
		return api.GetWebhookDelivery(ctx, id, pathID(query.Get("event")))
	})

	c.page(r, "/failed", "failed", "Failed by us", func(ctx context.Context, f *fiber.Ctx, api *client.Client) (any, error) {
		length, known := spans[f.Query("span", "hour")]
		if !known {
			return nil, fiber.ErrNotFound
		}
		return api.ListFailures(ctx, client.ListFailuresParams{Since: time.Now().UTC().Add(-length)})
	})
	c.page(r, "/keys", "keys", "API keys", func(ctx context.Context, _ *fiber.Ctx, api *client.Client) (any, error) {
		return api.ListKeys(ctx)
	})
	c.page(r, "/approvals/:id", "approval", "Request for approval", func(ctx context.Context, f *fiber.Ctx, api *client.Client) (any, error) {
		found, err := api.GetApproval(ctx, pathID(f.Params("id")))
		var job struct{ ID uuid.UUID } // that it has become
		if found.Result != nil {
			_ = json.Unmarshal(found.Result.Job, &job) // of none there is no id
		}
		session, by := SessionOf(f), found.RequestedBy
		isOwn := by.Subject == session.Subject && by.Issuer == session.Issuer && by.Client == session.Client
		return fiber.Map{"Approval": found, "Job": job.ID, "Withdraws": isOwn && session.Has(key.Operator), "Decides": session.Has(key.Approver), "Approves": session.Has(key.Approver) && !(isOwn && session.IsPerson())}, err
	})
	c.mountBooks(r)
	c.page(r, "/trail", "trail", "Trail", readTrail)
	c.mountFind(r)
}

// readTrail reads a page of the trail, by the filters of its form.
func readTrail(ctx context.Context, f *fiber.Ctx, api *client.Client) (any, error) {
	by := client.ListAuditTrailParams{Target: f.Query("target"), Key: strings.TrimSpace(f.Query("key")), Operator: strings.TrimSpace(f.Query("operator")), Operation: strings.TrimSpace(f.Query("operation")), Limit: pageSize}
	asked := &form{values: map[string]string{"since": f.Query("since"), "until": f.Query("until")}, Faults: make(map[string]string)}
	by.Since, by.Until = asked.time("since"), asked.time("until")
	for name, detail := range asked.Faults {
		return nil, fault.Invalid(fault.Field{Pointer: "/" + name, Detail: detail})
	}
	next := url.Values{"target": {by.Target}, "key": {by.Key}, "operator": {by.Operator}, "operation": {by.Operation}, "since": {f.Query("since")}, "until": {f.Query("until")}}
	by.Cursor = f.Query("cursor")
	page, err := api.ListAuditTrail(ctx, by)
	if page.NextCursor != "" {
		next.Set("cursor", page.NextCursor)
	}
	return fiber.Map{"By": by, "Times": asked.values, "Page": page, "Next": next.Encode(), "Operations": slices.Concat(trail.Operations, trail.OtherOperations)}, err
}

// spans are those that a link of the page names.
var spans = map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour}

// page registers a page that does not move. Without data, read has answered.
func (c *console) page(r fiber.Router, path, page, title string, read func(context.Context, *fiber.Ctx, *client.Client) (any, error)) {
	r.Get(path, func(f *fiber.Ctx) error {
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout+time.Second)
		defer cancel()
		data, err := read(ctx, f, c.api(f))
		if err != nil || data == nil {
			return err
		}
		return c.show(f, page, view{Title: title, Data: data})
	})
}

// readBoard lets the API itself answer.
func readBoard(f *fiber.Ctx) error {
	defer f.Path(f.Path()) // a page that says why not leads here again
	f.Path("/v1/campaigns/" + pathID(f.Params("id")).String() + "/positions")
	f.Request().Header.Set(fiber.HeaderAccept, fiber.MIMEApplicationJSON)
	return f.RestartRouting()
}

// purchasePage is what the page of a purchase shows.
type purchasePage struct {
	client.Purchase
	Job  *client.Job // nil: it is not kept any more
	Card []finding   // its payment, if that is by card
}

func (c *console) readPurchase(ctx context.Context, api *client.Client, id uuid.UUID, _ url.Values) (any, error) {
	found, err := api.GetPurchase(ctx, id, client.GetPurchaseParams{Include: client.WithPurchaseCampaign})
	if err != nil {
		return nil, err
	}
	p := purchasePage{Purchase: found}
	job, err := api.GetJob(ctx, p.JobID, client.GetJobParams{})
	if refused, ok := errors.AsType[*client.Error](err); err == nil {
		p.Job = &job
	} else if !ok || refused.Status != http.StatusNotFound {
		return nil, err
	}
	p.Card, err = c.lookUp(ctx, id.String(), "payment")
	return p, err
}
