// Package endpoints makes, changes, rotates and replays webhook endpoints for clients.
//
//   - A command is done once per idempotency key. Its job never has a secret:
//     [Service.Create] and [Service.Rotate] return the secret once.
//   - A client sees and changes its own endpoints, an operator those of every client.
//   - Package webhooks decides what is sent and when. This one sends nothing.
//
// Locks: the row of the endpoint, then deliveries; after the job of the command.
package webhook
