package console

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/fault"
)

// otherCommands are those that are not about a campaign.
var otherCommands = []command{
	{"/purchases/:id/cancel", "", action{Title: "Cancel the purchase", Text: "Its positions are free again. ", Danger: true}, aboutPurchase, cancelPurchase(true)},
	{"/purchases/:id/cancel-positions", "", action{Title: "Cancel the chosen positions", Danger: true,
		Text: "They are free again, and their price is returned. If you choose all: "}, aboutPurchase, cancelPurchase(false)},
	{"/purchases/:id/payment/retry", "", action{Title: "Ask the provider now", Text: "The payment is checked with the provider at once, and not at its next time."}, nil,
		plain((*client.Client).RetryPayment)},
	{"/purchases/:id/payment/resolve", "", action{Title: "Resolve the payment", Danger: true, Text: "What have you found at the provider? Unpaid: nothing was paid, or it is returned already; " +
		"the positions are released. Paid: all of it was paid, and the provider says so now; the positions are sold, or the money is refunded if they are gone. " +
		"Paid out of band: all of it came in another way; the positions are sold, the provider's payment is cancelled, and refunds are made by hand.", Fields: []field{
		{Name: "/outcome", Label: "Outcome", Type: "select", Required: true, Options: []string{"", string(client.PaymentOutcomeUnpaid), string(client.PaymentOutcomePaid), string(client.PaymentOutcomePaidOutOfBand)}},
		{Name: "/reference", Label: "Reference", Hint: "of money that was paid out of band: where it can be found", Type: "text"}}}, aboutPayment,
		filled((*client.Client).ResolvePayment, func(typed *form) client.PaymentResolutionRequest {
			return client.PaymentResolutionRequest{Outcome: client.PaymentOutcome(typed.text("/outcome")), Version: typed.number(version), Reference: typed.text("/reference"), Reason: typed.text(reason.Name)}
		})},
	{"/refunds/:id/retry", "", action{Title: "Retry the refund", Text: "%s are refunded anew by the provider."}, aboutRefund, plain((*client.Client).RetryRefund)},
	{"/refunds/:id/resolve", "", action{Title: "Mark the refund as made by hand", Danger: true,
		Text: "%s count as returned. No money moves: say how it was returned. The buyer can read it."}, aboutRefund,
		filled((*client.Client).ResolveRefund, func(typed *form) client.RefundResolutionRequest {
			return client.RefundResolutionRequest{Amount: typed.number("/amount"), Reason: typed.text(reason.Name)}
		})},
	{"/campaigns/:id/refunds/resolve", "", action{Title: "Mark all refunds as made by hand", Danger: true, Back: Path + "/waiting",
		Text: "These card refunds of the campaign, which the provider rejected or does not know, count as made: 1,000 at a time. No money moves: say how it was returned. The buyers can read it."},
		aboutRefunds,
		filled((*client.Client).ResolveRefunds, func(typed *form) client.RefundsResolutionRequest {
			request := client.RefundsResolutionRequest{Refunds: []client.ReturnedByHand{}, Reason: typed.text(reason.Name)}
			for _, name := range slices.Sorted(maps.Keys(typed.values)) {
				if id, isRefund := strings.CutPrefix(name, "refund/"); isRefund {
					request.Refunds = append(request.Refunds, client.ReturnedByHand{ID: pathID(id), Amount: typed.number(name)})
				}
			}
			return request
		})},
	{"/discrepancies/:id/explain", "", action{Title: "Explain the discrepancy", Text: "It no longer counts in alerts. Payments and refunds do not change.", Back: Path + "/waiting"}, aboutDiscrepancy,
		filled((*client.Client).ExplainPaymentDiscrepancy, func(typed *form) client.PaymentDiscrepancyExplanationRequest {
			return client.PaymentDiscrepancyExplanationRequest{Version: typed.number(version), Reason: typed.text(reason.Name)}
		})},
	{"/wallets/:id/credit", "", action{Title: "Credit the wallet", Text: "Money from outside is added to the balance of ", Fields: []field{
		{Name: "/amount", Label: "Amount, in minor units", Type: "number", Required: true},
		{Name: "/reference", Label: "Reference", Hint: "used once: a second credit with it is refused", Type: "text"},
		{Name: "/description", Label: "Description", Hint: "stands in the history of the wallet", Type: "text"}}}, aboutWallet,
		func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
			return filled((*client.Client).CreditWallet, func(typed *form) client.Movement {
				return client.Movement{Amount: typed.number("/amount"), Reference: typed.text("/reference"), Description: typed.text("/description")}
			})(ctx, api, typed, append(options, client.WithVersion(typed.number(version)))...)
		}},
	{"/approvals/:id/withdraw", "", action{Title: "Withdraw the request", Text: "Nothing is done."}, aboutApproval, reasoned((*client.Client).WithdrawRequest)},
	{"/webhooks/:id/test", "", action{Title: "Send a test event", Text: "It goes to this endpoint only, whatever it subscribes to."}, nil, plain((*client.Client).TestWebhookEndpoint)},
	{"/webhooks/:id/replay", "", action{Title: "Replay events", Text: "At most 1,000 events since then are sent again, the oldest first, 20 a second, with the same id and body. " +
		"What is left can be replayed afterwards. Repair the receiver first.", Fields: []field{
		{Name: "/from", Label: "Since, UTC", Type: "datetime-local", Required: true},
		{Name: "/state", Label: "Only those that", Hint: "missed: while the endpoint was disabled", Type: "select", Options: []string{"failed", "missed", "delivered"}}}}, nil,
		filled((*client.Client).ReplayWebhookDeliveries, func(typed *form) client.WebhookReplay {
			until := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) // not now: a form that is sent twice is one request
			return client.WebhookReplay{From: typed.time("/from"), To: until, State: client.WebhookReplayState(typed.text("/state"))}
		})},
	{"/webhooks/:id/enable", "", action{Title: "Enable the endpoint",
		Text: "It gets what happens from now on; what it has missed can be replayed. It is your key's from then on: revoking that key disables it."}, nil, plain((*client.Client).EnableWebhookEndpoint)},
	{"/webhooks/:id/disable", "", action{Title: "Disable the endpoint", Danger: true,
		Text: "Events that wait fail, and it misses new ones. Both can be replayed when it is enabled again."}, nil, plain((*client.Client).DisableWebhookEndpoint)},
	{"/webhooks/:id/again/:part", "", action{Title: "Replay the event", Text: "It is sent again, with the same id and body, even if it was delivered."}, nil,
		func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
			_, err := api.ReplayWebhookDelivery(ctx, pathID(typed.id), typed.part, options...)
			return err
		}},
	{"/sweeps/:id", "", action{Title: "Run the sweep :id", Text: "It runs now, beside the scheduler. Running it twice at once does no harm.", Back: Path + "/now"}, nil,
		func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
			report, err := api.RunSweep(ctx, typed.id, options...)
			if err == nil && report.Error != "" {
				err = fault.New(fault.Unavailable, "%s", report.Error)
			}
			return err
		}},
	{"/keys/:id/revoke", "", action{Title: "Revoke the key :id", Danger: true, Typed: ":id", Back: Path + "/keys",
		Text: "The key stops working everywhere within five seconds, and so do its streams and its sessions of this console. This cannot be undone.",
		Fields: []field{{Name: "/transfer_endpoints_to", Label: "Transfer its webhook endpoints to", Type: "text",
			Hint: "the prefix of another key of its client; empty: they are disabled"}}}, nil,
		func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
			_, err := api.RevokeKey(ctx, typed.id, client.KeyRevocation{TransferEndpointsTo: typed.text("/transfer_endpoints_to")}, options...)
			return err
		}},
}

// decisions are what approvers do with a request.
var decisions = []command{
	{"/approvals/:id/approve", "", action{Title: "Approve the request", Danger: true, Text: "It is done now, exactly as it was asked for."}, aboutApproval, reasoned((*client.Client).ApproveRequest)},
	{"/approvals/:id/reject", "", action{Title: "Reject the request", Text: "Nothing is done."}, aboutApproval, reasoned((*client.Client).RejectRequest)},
}

func aboutApproval(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
	found, err := api.GetApproval(ctx, id)
	for _, f := range found.Preview {
		a.Facts = append(a.Facts, fact(f))
	}
	return err
}

// explainForm explains the discrepancies that are marked: at first all. Those that are explained already are not in a form
// that is sent again, so it goes on with the rest.
func explainForm(ctx context.Context, f *fiber.Ctx, api *client.Client) (a action, do run, err error) {
	a = action{Path: f.Path(), Title: "Explain the marked discrepancies", Back: Path + "/waiting",
		Text: "They no longer count in alerts. Payments and refunds do not change. Remove the mark of those that have another reason."}
	open, err := api.ListPaymentDiscrepancies(ctx, client.ListPaymentDiscrepanciesParams{State: client.PaymentDiscrepancyStateOpen, Limit: 200})
	side := func(s client.PaymentDiscrepancySide) string {
		if s.Currency == "" {
			return "nothing"
		}
		return moneyText(s.Amount, s.Currency)
	}
	for _, d := range open.PaymentDiscrepancies {
		label := fmt.Sprintf("%s %s: %s; here %s, there %s", d.Kind, d.Reference, d.Detail, side(d.Here), side(d.There))
		one := field{Name: "discrepancy/" + d.ID.String(), Type: "checkbox", Label: label}
		if f.Method() == http.MethodGet {
			one.Value = "on"
		}
		a.Fields = append(a.Fields, one, hidden(version+"/"+d.ID.String(), d.Version))
	}
	a.Fields = append([]field{reason}, a.Fields...)
	return a, func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
		marked := slices.ContainsFunc(slices.Collect(maps.Keys(typed.values)), func(name string) bool { return strings.HasPrefix(name, "discrepancy/") })
		for _, one := range a.Fields {
			id, isMark := strings.CutPrefix(one.Name, "discrepancy/")
			if !isMark || typed.text(one.Name) == "" {
				continue
			}
			request := client.PaymentDiscrepancyExplanationRequest{Version: typed.number(version + "/" + id), Reason: typed.text(reason.Name)}
			if _, err := api.ExplainPaymentDiscrepancy(ctx, pathID(id), request, append(options, client.WithKey(typed.text("once")+"-"+id))...); err != nil {
				return err
			}
		}
		if !marked {
			return fault.Invalid(fault.Field{Pointer: "/discrepancies", Detail: "mark at least one"})
		}
		return nil
	}, err
}

func aboutWallet(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
	wallet, err := api.GetWallet(ctx, id)
	a.Text += moneyText(wallet.Balance, wallet.Currency) + ". 1234 are " + moneyText(1234, wallet.Currency) + "."
	a.Fields = append(a.Fields, hidden(version, wallet.Version))
	return err
}

// version is the hidden field for the version of what a form shows: a newer one is refused.
const version = "/version"

func hidden(name string, value int64) field { return field{Name: name, Type: "hidden", Value: value} }

// find returns the first of a list that is the one; one that is not there any more is zero.
func find[T any](all iter.Seq2[T, error], is func(T) bool) (found T, err error) {
	for one, err := range all {
		if err != nil || is(one) {
			return one, err
		}
	}
	return found, nil
}

func aboutPayment(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
	p, err := find(api.Payments(ctx, client.ListPaymentsParams{WaitingFor: client.WaitingForOperator, Limit: 200}), func(p client.CardPayment) bool { return p.PurchaseID == id })
	if p.PurchaseID == id {
		a.Facts = []fact{{"Amount", moneyText(p.Amount, p.Currency)}, {"At the provider", p.Reference}, {"Its status there, when it was read last", cmp.Or(p.Status, "unknown")},
			{"Phase", string(p.Phase)}, {"Why it waits", p.Reason}}
		a.Fields = append(a.Fields, hidden(version, p.Version))
	}
	return err
}

func aboutDiscrepancy(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
	d, err := find(api.PaymentDiscrepancies(ctx, client.ListPaymentDiscrepanciesParams{State: client.PaymentDiscrepancyStateOpen, Limit: 200}), func(d client.PaymentDiscrepancy) bool { return d.ID == id })
	if d.ID == id {
		a.Facts = []fact{{"At the provider", d.Reference}, {"Detail", d.Detail}, {"Here", moneyText(d.Here.Amount, d.Here.Currency)}, {"There", moneyText(d.There.Amount, d.There.Currency)}}
		a.Fields = append(a.Fields, hidden(version, d.Version))
	}
	return err
}

// aboutRefunds has the refunds of a campaign that wait for an operator, each with its amount: no other is resolved.
func aboutRefunds(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
	const most = 1000 // of a request
	var sum int64
	var currency client.Currency
	n := 0
	_, err := find(api.WaitingRefunds(ctx, client.ListWaitingRefundsParams{WaitingFor: client.RefundsWaitingForOperator, Limit: 200}), func(r client.Refund) bool {
		if r.CampaignID == id {
			n, sum, currency = n+1, sum+r.Amount, r.Currency
			a.Fields = append(a.Fields, hidden("refund/"+r.ID.String(), r.Amount))
		}
		return n == most
	})
	return errors.Join(aboutCampaign(func(client.Campaign) []fact {
		return []fact{{"Refunds", fmt.Sprintf("%d, together %s", n, moneyText(sum, currency))}}
	})(ctx, api, id, a), err)
}

// cancelPurchase cancels a purchase, or the positions that the form has: not all but those that are left, so that a form that
// is sent twice is the same request.
func cancelPurchase(whole bool) run {
	return func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
		request := client.CancellationRequest{Reason: typed.text(reason.Name)}
		for name := range typed.values {
			if number, isPosition := strings.CutPrefix(name, "position/"); isPosition {
				n, _ := strconv.Atoi(number) // the API refuses 0
				request.Positions = append(request.Positions, client.PlaceDraft{Number: n})
			}
		}
		if !whole && len(request.Positions) == 0 {
			return fault.Invalid(fault.Field{Pointer: "/positions", Detail: "choose at least one"})
		}
		slices.SortFunc(request.Positions, func(a, b client.PlaceDraft) int { return a.Number - b.Number })
		job, err := api.CancelPurchase(ctx, pathID(typed.id), request, options...)
		return typed.follow(job, err)
	}
}

// returns says what a cancellation returns, by how the purchase was paid.
var returns = map[client.PaymentMethod]string{
	client.PaymentMethodWallet:   "%s are credited to the wallet.",
	client.PaymentMethodCard:     "%s are refunded to the card, as far as it was charged.",
	client.PaymentMethodExternal: "A refund of %s is listed: the app that took the money returns it.",
}

func aboutPurchase(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
	purchase, err := api.GetPurchase(ctx, id, client.GetPurchaseParams{})
	var sum int64
	for _, at := range purchase.Positions {
		if sum += at.Price; strings.HasSuffix(a.Path, "-positions") {
			a.Fields = append(a.Fields, field{Name: "position/" + strconv.Itoa(at.Number), Type: "checkbox", Label: at.Label + ": " + moneyText(at.Price, purchase.Currency)})
		}
	}
	a.Text += fmt.Sprintf(returns[purchase.Payment.Method], moneyText(sum, purchase.Currency)) + " The buyer can read the reason."
	return err
}

// aboutRefund leads back to the purchase, and puts the amount into the text.
func aboutRefund(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
	refund, err := api.GetRefund(ctx, id)
	a.Back, a.Text = Path+"/purchases/"+refund.PurchaseID.String(), fmt.Sprintf(a.Text, moneyText(refund.Amount, refund.Currency))
	a.Fields = append(a.Fields, hidden("/amount", refund.Amount))
	return err
}

// chosen is the field for positions.
var chosen = field{Name: "/positions", Label: "Positions", Hint: "layer/column or layer/first-last: 2/1-5, 3/4", Type: "textarea", Required: true}

// campaignCommands are what can be done with campaigns in some states.
var campaignCommands = []command{
	{"/campaigns/:id/publish", "pending", action{Title: "Publish",
		Text: "The sale opens, and what stands here is fixed. Only the name, a higher limit and, without the policy draw, a later end can be changed then."}, aboutCampaign(rulesOf), plain((*client.Client).PublishCampaign)},
	{"/campaigns/:id/pause", "active", action{Title: "Pause the sale", Text: "No purchase is accepted until the sale is resumed."}, aboutCampaign(nil), plain((*client.Client).PauseCampaign)},
	{"/campaigns/:id/resume", "paused", action{Title: "Resume the sale", Text: "Purchases are accepted again."}, aboutCampaign(nil), plain((*client.Client).ResumeCampaign)},
	{"/campaigns/:id/block", "active paused", action{Title: "Block positions", Fields: []field{chosen},
		Text: "Free positions leave the sale and the draw until they are unblocked: all of these, or none. The campaign must have the policy draw."},
		aboutCampaign(nil), filled((*client.Client).BlockPositions, func(typed *form) client.PositionsBlock {
			return client.PositionsBlock{Positions: typed.places(), Reason: typed.text(reason.Name)}
		})},
	{"/campaigns/:id/unblock", "active paused", action{Title: "Unblock positions", Text: "Blocked positions are on sale again: all of these, or none.", Fields: []field{chosen}},
		aboutCampaign(nil), filled((*client.Client).UnblockPositions, func(typed *form) client.PositionsUnblock { return client.PositionsUnblock{Positions: typed.places()} })},
	{"/campaigns/:id/draw", "active paused drawing", action{Title: "Request the draw",
		Text: "A campaign is drawn by itself when everything is sold, or when its sale ends with the policy draw. A request does no harm: if positions are left, nothing changes."}, aboutCampaign(nil), plain((*client.Client).RequestDraw)},
	{"/campaigns/:id/round", "drawing", action{Title: "Submit the round", Text: "If the relays of the beacon do not answer, its round can be submitted by hand. A wrong signature changes nothing.", Fields: []field{
		{Name: "/signature", Label: "Signature of the round", Hint: "48 bytes in lower-case hex, from any relay of the chain", Type: "text", Required: true}}},
		aboutCampaign(nil), filled((*client.Client).SubmitDrawRound, func(typed *form) client.DrawRoundSignature {
			return client.DrawRoundSignature{Signature: typed.text("/signature")}
		})},
	{"/campaigns/:id/void", "drawing", action{Title: "Void the draw", Danger: true, Text: "The campaign is cancelled and never drawn; every purchase is refunded. A draw must not be voided for its outcome: " +
		"where that may be known, the void is announced seven days ahead. The reason is public."}, aboutCampaign(refundsOf), reasoned((*client.Client).VoidDraw)},
	{"/campaigns/:id/cancel", "pending active paused", action{Title: "Cancel the campaign", Danger: true, Text: "The sale stops, holds end, payments that are not captured are cancelled, and every purchase is refunded: " +
		"to the wallet, to the card, or by the app that has collected the money. The reason is public."}, aboutCampaign(refundsOf), reasoned((*client.Client).CancelCampaign)},
}

// actionsOf returns links to what can be done with a campaign in its state, for its page.
func actionsOf(c client.Campaign) (links []action) {
	state, page := string(c.State), Path+"/campaigns/"+c.ID.String()+"/"
	if c.Paused && c.State == client.CampaignStateActive {
		state = "paused"
	}
	if strings.Contains("pending active paused", state) {
		links = append(links, action{Path: page + "edit", Title: "Edit"})
	}
	for _, one := range campaignCommands {
		name := path.Base(one.path)
		isUseless := name == "block" && c.Policies.Unsold != "draw" || name == "unblock" && c.Positions.Blocked == 0 || name == "round" && !c.Policies.Beacon
		if strings.Contains(one.states, state) && !isUseless {
			links = append(links, action{Path: page + name, Title: one.Title, Danger: one.Danger})
		}
	}
	return links
}

// aboutCampaign shows the campaign, and facts, if there are any. Before what cannot be undone its name must be typed.
func aboutCampaign(facts func(client.Campaign) []fact) func(context.Context, *client.Client, uuid.UUID, *action) error {
	return func(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
		found, err := api.GetCampaign(ctx, id)
		a.Facts = []fact{{"Campaign", found.Name + " (" + string(found.State) + ")"}}
		if a.Danger {
			a.Typed = cmp.Or(oneLine(found.Name), id.String())
		}
		if facts != nil {
			a.Facts = append(a.Facts, facts(found)...)
		}
		if found.State == client.CampaignStatePending { // its facts are fixed by the publication
			a.Seen = fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, valuesOf(found)))) // fmt sorts maps
		}
		return err
	}
}

var place = regexp.MustCompile(`^(\d{1,6})/(\d{1,6})(?:-(\d{1,6}))?$`)

// places reads positions such as 2/1-5, 3/4. What is not like that becomes a place without a position: the API refuses
// it, and all.
func (t *form) places() (places []client.PlaceDraft) {
	const tooMany = 1001
	t.parts = make(map[string][]string)
	for text := range strings.FieldsFuncSeq(t.text(chosen.Name), func(r rune) bool { return strings.ContainsRune(", \n", r) }) {
		m := append(place.FindStringSubmatch(text), "", "", "", "")
		layer, _ := strconv.Atoi(m[1])
		first, _ := strconv.Atoi(m[2])
		last, err := strconv.Atoi(m[3])
		if err != nil {
			last = first
		} else if last < first {
			layer, first, last = 0, 0, 0
		}
		for column := first; column <= last && len(places) < tooMany; column++ {
			places, t.parts[chosen.Name] = append(places, client.PlaceDraft{Layer: layer, Column: column}), append(t.parts[chosen.Name], text)
		}
	}
	return places
}

// refundsOf says what is refunded if a campaign ends now.
func refundsOf(c client.Campaign) []fact {
	return []fact{{"Refunded", fmt.Sprintf("%d positions, %s", c.Positions.Sold, moneyText(incomeOf(c.Layers...), c.Currency))}}
}
