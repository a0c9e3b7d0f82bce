// Package webhooks delivers events to the endpoints of apps.
//
// A worker claims an endpoint, and sends in rounds until nothing is due, or others should
// have a turn. A round reads due deliveries, renders new messages, sends a bounded number
// at a time, and records the results. No transaction is open and no row is locked while it
// sends.
//
//   - At least once: an unrecorded attempt is made again, with the same id and the same
//     bytes.
//   - One worker at a time sends to an endpoint. Requests begin only in the first part of
//     the lease, and every write is fenced.
//   - A delivery is tried 13 times in about three days ([Schedule]).
//   - An endpoint that fails as a whole is paused: one event at a time is tried, after
//     longer and longer pauses. After days of that it is disabled.
//   - Slow endpoints have slots of their own: see KindSlow.
//   - A turn is cut in the middle of a round: see [Settings].
//   - An answer of 410 disables the endpoint; Retry-After is respected, up to a day.
//
// Order is not promised.
package webhook
