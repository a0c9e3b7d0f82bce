package problemdocs

import "triprize/internal/domain/fault"

// Paths of the examples.
const (
	campaigns = "/v1/campaigns"
	campaign  = campaigns + "/0198c9a4-7d52-7c1e-9a44-5b0f2f6d8e31"
	purchases = campaign + "/purchases"
	wallet    = "/v1/wallets/0198c9a6-1b0e-7f3d-8c55-9a1d3e7b2f40"
)

var retryAfter = []string{"Retry-After: 1"}

// examples has an occurrence of every code.
var examples = map[fault.Code]example{
	fault.InvalidRequest: {where: inEither, path: purchases, detail: "/selection/quantity: must be at least 1", fields: []fault.Field{
		{Pointer: "/user_id", Detail: "must have at least 1 character"},
		{Pointer: "/selection/quantity", Detail: "must be at least 1"},
	}},
	fault.KeyMissing: {path: purchases, detail: "send an Idempotency-Key header, for example a fresh UUID, and the same one when you retry"},
	fault.KeyInvalid: {path: purchases, detail: "an Idempotency-Key has 1 to 255 printable ASCII characters"},
	fault.Unauthenticated: {path: campaigns, detail: "the API key is not known or was revoked",
		headers: []string{`WWW-Authenticate: Bearer realm="Triprize"`}},
	fault.Forbidden:            {path: campaign + "/publish", detail: "the role app may not do this"},
	fault.NotFound:             {where: inEither, path: campaign, detail: "there is no campaign 0198c9a4-7d52-7c1e-9a44-5b0f2f6d8e31"},
	fault.MethodNotAllowed:     {path: campaign + "/publish", detail: "this path does not allow this method; the Allow header lists those it does", headers: []string{"Allow: POST"}},
	fault.BodyTooLarge:         {path: campaigns, detail: "the request is larger than this server accepts"},
	fault.UnsupportedMediaType: {path: purchases, detail: "send the body as application/json"},
	fault.LengthRequired:       {path: purchases, detail: "send Content-Length; a Transfer-Encoding is not accepted here"},
	fault.RequestTimeout:       {path: purchases, detail: "the request did not arrive in time"},
	fault.HeadersTooLarge:      {path: campaign, detail: "the header fields are larger than this server accepts"},
	fault.CampaignNotActive:    {where: inJob, detail: "the campaign is pending"},
	fault.CampaignPaused:       {where: inJob, detail: "the operator has paused the sale"},
	fault.SaleNotOpen:          {where: inJob, detail: "the sale has not begun or is over"},
	fault.SoldOut:              {where: inJob, detail: "all 3 positions of layer 3 are sold"},
	fault.NoneAvailable:        {where: inJob, detail: "asked for 5, and fewer are free at the moment; held and reserved positions may become free again"},
	fault.PositionTaken: {where: inEither, path: campaign + "/holds", detail: "position 3/1 is taken",
		fields: []fault.Field{{Pointer: "/positions/0", Detail: "position 3/1 is taken"}}},
	fault.HoldExpired:           {where: inEither, path: "/v1/holds/0198c9a4-9e21-7c1e-9a44-5b0f2f6d8e31/extend", detail: "the hold ended at 2026-07-01T09:02:00Z"},
	fault.HoldLimitExceeded:     {path: campaign + "/holds", detail: "this user has 5 holds in this campaign; more are not allowed at a time"},
	fault.PurchaseLimitExceeded: {where: inJob, detail: "the limit is 3 positions per user; this user has 2 and asks for 2 more"},
	fault.InsufficientFunds:     {where: inEither, path: wallet + "/debit", detail: "1200 JPY are available, and 1500 JPY are needed"},
	fault.NotSoldOut:            {where: inJob, detail: "8 of 10 positions are sold"},
	fault.StateConflict:         {path: campaign + "/publish", detail: "only a pending campaign can be published; this one is active"},
	fault.VersionMismatch:       {path: wallet + "/debit", detail: "the wallet has version 8, not 7"},
	fault.KeyReused:             {path: purchases, detail: "this Idempotency-Key was used for a different request; use a fresh key"},
	fault.RateLimited:           {path: purchases, detail: "too many requests; retry after 1 s with the same Idempotency-Key", headers: retryAfter},
	fault.Unavailable:           {path: purchases, detail: "the outcome is unknown; retry with the same Idempotency-Key", headers: retryAfter},
	fault.Overloaded:            {path: purchases, detail: "too many requests are waiting; retry with the same Idempotency-Key", headers: retryAfter},
	fault.PaymentDeclined: {where: inJob, detail: "Your card has insufficient funds.",
		decline: decline{DeclineCode: "insufficient_funds", Advice: "try_again_later"}},
	fault.PaymentRefused:     {where: inJob, detail: "the payment provider refuses this payment: No such PaymentMethod: 'pm_1'"},
	fault.PaymentNotReceived: {where: inJob, detail: "the payment was never received, as an operator has found; the positions are free again"},
	fault.PurchaseCancelled:  {where: inJob, detail: "the purchase was cancelled before it was paid"},
	fault.PurchaseDisputed:   {where: inJob, detail: "the buyer has disputed the charge (du_1, needs_response): the bank decides what becomes of the money; an operator can still cancel the purchase"},
	fault.CardsNotAccepted:   {path: purchases, detail: "cards are not accepted here: this installation has no payment provider (payments.stripe.key)"},
	fault.ReservationExpired: {where: inJob, detail: "the payment did not arrive in time; the positions are free again"},
	fault.WalletExists:       {path: "/v1/wallets", detail: "the owner has a wallet in JPY already: 0198c9a6-1b0e-7f3d-8c55-9a1d3e7b2f40", about: "0198c9a6-1b0e-7f3d-8c55-9a1d3e7b2f40"},
	fault.InternalError:      {where: inEither, path: purchases, detail: "an unexpected error; it has been recorded"},
}

// exampleOf returns the example of a code.
func exampleOf(code fault.Code) example { return examples[code] }
