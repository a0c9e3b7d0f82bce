// Package endpoints carries out what clients decide about their webhook endpoints: where
// events are sent, of which types, signed with what, and what is sent again.
//
//   - A command is done once per idempotency key, like every other. What it leaves behind in
//     its job never has a secret: [Service.Create] and [Service.Rotate] return the secret
//     beside it, to whoever has made it and to nobody later.
//   - A client sees and changes its own endpoints; an operator those of every client. An
//     endpoint of somebody else is not found.
//   - What is sent, and when, is decided by the package webhooks; this one sends nothing.
//
// Locks: the row of the endpoint, then deliveries; after the job of the command.
package endpoints
