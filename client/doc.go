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
// There is a method for every operation of the HTTP contract, and on top of them
// Buy and Wait, which wait for jobs, Campaigns, Purchases and WalletEvents, which
// turn the pages, and Follow and FollowJob, which listen to event streams. What is null
// or left out in JSON is the zero value here.
//
// # Retries
//
// Every POST carries an Idempotency-Key: that of WithKey, or a fresh one. So a
// request whose answer is lost is sent again, with the same key, and is done
// once. That goes for network errors and the answers 408, 429, 500, 502, 503 and
// 504, within the bounds of RetryPolicy and no sooner than Retry-After asks for.
// A PATCH has no key: it is sent again only when it has not left this machine.
//
// A program that may crash and ask again should name the key itself, after what
// it is about: an order, say. A fresh key is another purchase.
//
// # Errors
//
// What the server refuses is an *Error; act on its code:
//
//	if problem, ok := errors.AsType[*client.Error](err); ok && problem.Code == client.CodeSoldOut { … }
//
// A purchase is refused in its job, which Err and Purchased turn into the same
// error. Every other error of a POST leaves open whether it was done: ask again
// with the same key.
package client

//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config client.yaml ../api/openapi.yaml
