package console

import (
	"context"
	"errors"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"triprize.example/client"
)

// mountWaiting registers the page of what waits for a person, and the commands about many refunds and about differences.
func (c *console) mountWaiting(r fiber.Router) {
	c.livePage(r, "/waiting", "waiting", "", "Waiting for a person", func(ctx context.Context, api *client.Client, _ string) (any, error) {
		payments, err1 := api.ListPayments(ctx, client.ListPaymentsParams{Limit: 100})
		refunds, err2 := api.ListWaitingRefunds(ctx, client.ListWaitingRefundsParams{WaitingFor: client.RefundsWaitingForOperator, Limit: 100})
		differences, err3 := api.ListPaymentDiscrepancies(ctx, client.ListPaymentDiscrepanciesParams{State: client.PaymentDiscrepancyStateOpen, Limit: 100})
		return fiber.Map{"Payments": payments, "Refunds": refunds, "Differences": differences}, errors.Join(err1, err2, err3)
	}, nil)
	c.actOn(r,
		deed{"/campaigns/:id/refunds/resolve", action{Title: "Mark all refunds as made by hand", Danger: true, Back: Path + "/waiting",
			Text: "All card refunds of the campaign that the provider rejected, or does not know, count as made: 1,000 at a time. No money moves: say how it was returned. The buyers can read it."},
			func(ctx context.Context, api *client.Client, id uuid.UUID, a *action) error {
				campaign, err := api.GetCampaign(ctx, id)
				a.Typed = campaign.Name
				return err
			}, filled((*client.Client).ResolveRefunds, byHand)},
		deed{"/discrepancies/:id/explain", action{Title: "Explain the difference", Text: "It no longer counts in alerts. Payments and refunds do not change.", Back: Path + "/waiting"}, nil,
			filled((*client.Client).ExplainPaymentDiscrepancy, func(typed *form) client.PaymentDiscrepancyExplanationRequest {
				return client.PaymentDiscrepancyExplanationRequest{Reason: typed.text(reason.Name)}
			})})
}
