// Package webhookhttp sends signed messages to addresses that clients have named.
//
//   - A message is signed as Standard Webhooks 1.0, with every valid key.
//   - A connection is made only to a public address, or to one that a setting allows. The
//     address is checked at the moment of the connection, so DNS rebinding has no effect.
//   - http is for allowed addresses only, https for all.
//   - No redirect, no proxy, no cookie.
//   - A request ends in time and reads a bounded answer.
package sender
