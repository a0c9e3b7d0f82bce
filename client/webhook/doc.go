// Package webhook verifies the webhooks that Triprize sends, and reads their events.
//
//	v, err := webhook.New(os.Getenv("WEBHOOK_SECRET"))
//	http.Handle("/webhooks/triprize", v.Handler(func(ctx context.Context, e webhook.Event) error {
//		switch e.Type {
//		case "purchase.completed":
//			bought, err := e.Purchase()
//			…
//		}
//		return nil
//	}))
//
// They are signed as Standard Webhooks 1.0: HMAC-SHA-256 over the id, the time of the attempt
// and the body, once for each secret. An event comes at least once: keep the IDs that you have
// handled.
package webhook
