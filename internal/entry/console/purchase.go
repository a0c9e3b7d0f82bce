package console

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
)

// mountPurchases registers the page of a purchase, and the commands about it, its payment and its refunds.
func (c *console) mountPurchases(r fiber.Router) {
	c.livePage(r, "/purchases/:id", "purchase", "id", "Purchase", func(ctx context.Context, api *client.Client, id string) (any, error) {
		var shown struct {
			client.Purchase
			Job  *client.Job // nil: it is not kept any more
			Card []finding   // its payment, if that is by card
		}
		var err error
		if shown.Purchase, err = api.GetPurchase(ctx, pathID(id), client.GetPurchaseParams{Include: client.WithPurchaseCampaign}); err != nil {
			return nil, err
		}
		if job, err := api.GetJob(ctx, shown.JobID, client.GetJobParams{}); err == nil {
			shown.Job = &job
		}
		shown.Card, err = c.lookUp(ctx, id, "payment")
		return shown, err
	}, nil)
	back := Path + "/purchases/"
	outcome := field{Name: "/outcome", Label: "Outcome", Type: "select", Required: true, Options: []string{"", string(client.PaymentOutcomeUnpaid), string(client.PaymentOutcomePaid)}}
	c.actOn(r,
		deed{"/purchases/:id/cancel", action{Title: "Cancel the purchase", Text: "Its positions are free again. ", Danger: true, Back: back}, aboutPurchase, cancelPurchase(true)},
		deed{"/purchases/:id/cancel-positions", action{Title: "Cancel the chosen positions", Text: "They are free again, and their price is returned. For all of them: ", Danger: true, Back: back}, aboutPurchase, cancelPurchase(false)},
		deed{"/purchases/:id/payment/retry", action{Title: "Ask the provider now", Text: "The payment is checked with the provider at once, and not at its next time.", Back: back}, nil, plain((*client.Client).RetryPayment)},
		deed{"/purchases/:id/payment/resolve", action{Title: "Resolve the payment", Danger: true, Back: back, Fields: []field{outcome}, Text: "What have you found at the provider? " +
			"Unpaid: nothing was paid, or it is returned already; the positions are released. Paid: all of it was paid; the positions are sold, or the money is refunded if they are gone."}, nil,
			filled((*client.Client).ResolvePayment, func(typed *form) client.PaymentResolutionRequest {
				return client.PaymentResolutionRequest{Outcome: client.PaymentOutcome(typed.text("/outcome")), Reason: typed.text(reason.Name)}
			})},
		deed{"/refunds/:id/retry", action{Title: "Retry the refund", Text: "%s are refunded anew by the provider."}, aboutRefund, plain((*client.Client).RetryRefund)},
		deed{"/refunds/:id/resolve", action{Title: "Mark the refund as made by hand", Danger: true, Text: "%s count as returned. No money moves: say how it was returned. The buyer can read it."}, aboutRefund,
			filled((*client.Client).ResolveRefund, byHand)})
}

// deed is a command about the thing whose id is in its path, with a reason.
type deed struct {
	path   string
	action                                                                              // Back ends with a slash where the id belongs
	about  func(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error // adds what is known of the thing; nil: nothing
	do     doer
}

type doer func(ctx context.Context, api *client.Client, id uuid.UUID, typed *form, options ...client.CallOption) error

// actOn registers deeds.
func (c *console) actOn(r fiber.Router, deeds ...deed) {
	for _, d := range deeds {
		c.act(r, d.path, "asked", func(f *fiber.Ctx) (action, command, error) {
			a, id := d.action, pathID(f.Params("id"))
			if a.Path = f.Path(); strings.HasSuffix(a.Back, "/") {
				a.Back += id.String()
			}
			var err error
			if d.about != nil {
				ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
				defer cancel()
				err = d.about(ctx, c.api(f), id, &a)
			}
			a.Fields = append(slices.Clone(a.Fields), reason)
			return a, func(ctx context.Context, api *client.Client, typed *form, options ...client.CallOption) error {
				return d.do(ctx, api, id, typed, options...)
			}, err
		})
	}
}

// plain does a command without a body.
func plain[T any](call func(*client.Client, context.Context, uuid.UUID, ...client.CallOption) (T, error)) doer {
	return func(ctx context.Context, api *client.Client, id uuid.UUID, _ *form, options ...client.CallOption) error {
		_, err := call(api, ctx, id, options...)
		return err
	}
}

// filled does a command with a body from the form.
func filled[B, T any](call func(*client.Client, context.Context, uuid.UUID, B, ...client.CallOption) (T, error), from func(typed *form) B) doer {
	return func(ctx context.Context, api *client.Client, id uuid.UUID, typed *form, options ...client.CallOption) error {
		body := from(typed)
		if len(typed.Faults) > 0 {
			return nil
		}
		_, err := call(api, ctx, id, body, options...)
		return err
	}
}

func byHand(typed *form) client.RefundResolutionRequest {
	return client.RefundResolutionRequest{Reason: typed.text(reason.Name)}
}

// cancelPurchase cancels a purchase, or the positions that the form has: not all but those that are left, so that a form that
// is sent twice is the same request.
func cancelPurchase(whole bool) doer {
	return func(ctx context.Context, api *client.Client, id uuid.UUID, typed *form, options ...client.CallOption) error {
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
		job, err := api.CancelPurchase(ctx, id, request, append(options, client.WithWait(2*time.Second))...)
		return typed.follow(job, err)
	}
}

// returns says what a cancellation returns, by how the purchase was paid.
var returns = map[client.PaymentMethod]string{client.PaymentMethodWallet: "%s are credited to the wallet.", client.PaymentMethodCard: "%s are refunded to the card, as far as it was charged.",
	client.PaymentMethodExternal: "A refund of %s is listed: the app that took the money returns it."}

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
	return err
}

func moneyText(amount int64, currency client.Currency) string {
	return money.Currency(currency).Format(money.Amount(amount))
}
