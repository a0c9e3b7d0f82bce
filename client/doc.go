// Package client calls Triprize from Go.
//
//	c, err := client.New("https://triprize.example.com", "tp_…")
//	job, err := c.Buy(ctx, campaign, client.PurchaseRequest{
//		UserID:    "user-1",
//		Selection: client.Selection{Quantity: 1},
//		Payment:   client.PaymentDraft{Method: client.PaymentDraftMethodExternal, Reference: "order-4711"},
//	}, client.WithKey("order-4711"))
//	bought, err := job.Purchased()
//
// There is a method for every operation of the HTTP contract. In addition, Buy, BuyHold, Pay,
// Cancel and Wait wait for jobs; Campaigns, Purchases and WalletEvents read page after page;
// Follow, FollowBoard and FollowJob read event streams; WithETag reads only what has changed.
// Package webhook verifies what the server sends by itself. A member that is null or missing in JSON
// is the zero value here.
//
// # Cards
//
// A purchase by card names the buyer's payment method at the provider:
//
//	Payment: client.PaymentDraft{Method: client.PaymentDraftMethodCard, PaymentMethod: "pm_…", ReturnURL: "https://shop.example/back"}
//
// When the job that Buy returns AwaitsAction, NextAction says what the buyer can do until
// ExpiresAt:
//
//	switch next := job.NextAction; next.Type {
//	case client.NextActionTypeRedirect: // send the buyer to next.URL, and follow the job
//	case client.NextActionTypePaymentMethod: // the card was declined: show next.Decline.Message, and ask for another one
//		job, err = c.Pay(ctx, job.PurchaseID, client.PaymentTry{PaymentMethod: "pm_…"})
//	}
//
// An authentication may end in a decline, too: FollowJob tells of it at once, while Wait waits for
// the end. Without another card the job fails in time with CodePaymentDeclined, DeclineCode and
// Advice; About then names the hold that keeps the positions again, if there is one.
//
// # Retries
//
// Every POST carries an Idempotency-Key: that of WithKey, or a fresh one. So a
// request whose answer is lost can be sent again with the same key, and is done only
// once. Requests are repeated after network errors and the answers 408, 429, 500,
// 502, 503 and 504, within the bounds of RetryPolicy and not before Retry-After.
// A DELETE needs no key; after a lost answer a 404 may mean that it was done. PATCH has none: it
// is sent again only if there was no connection.
//
// A program that may crash and repeat a request should choose the key itself, for
// example the id of an order. With a fresh key it would buy again.
//
// # Errors
//
// When the server refuses a request, the error is an *Error; act on its code:
//
//	if problem := (*client.Error)(nil); errors.As(err, &problem) && problem.Code == client.CodeSoldOut { … }
//
// A purchase is refused in its job; Err and Purchased return that as an *Error too. When its
// campaign never sells again, it is refused without a job: Buy returns the same *Error.
// After any other error of a POST it is unknown whether it was done: send it again
// with the same key.
package client

//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config client.yaml ../api/openapi.yaml
