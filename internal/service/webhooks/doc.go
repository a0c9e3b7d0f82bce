// Package webhooks tells apps what has happened: it delivers the events of their endpoints.
//
// A turn is what a worker does with one endpoint: it claims the endpoint, and then sends in
// rounds until nothing is due, or others should have a turn. A round reads what is due,
// renders what was never sent, sends a bounded number at a time, and records what came of it.
// No transaction is open and no row is locked while it sends.
//
//   - At least once: what was sent and not recorded is sent again, with the same id and the
//     same bytes.
//   - One worker at a time sends to an endpoint. Nothing is begun after the first part of the
//     lease, so a worker that was stopped sends nothing when somebody else does; and what it
//     writes is fenced.
//   - A delivery is tried 13 times in about three days ([Schedule]).
//   - An endpoint that is down as a whole is paused: until something arrives, one event is
//     tried at a time, after longer and longer pauses. After days of that it is disabled. So
//     a flood for it costs nobody else anything.
//   - Endpoints that keep a worker waiting have slots of their own: see [KindSlow].
//   - An answer of 410 disables the endpoint; Retry-After is kept to, up to a day.
//
// Order is not promised.
package webhooks
