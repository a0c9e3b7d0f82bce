// Package webhookhttp sends signed messages to addresses that strangers have named.
//
//   - A message is signed as Standard Webhooks 1.0 says, with every key that is valid.
//   - A connection is made only to a public address, or to one that a setting allows. What
//     counts is the address at the moment of the connection, not the name in the URL: a name
//     that leads elsewhere the second time leads nowhere.
//   - http is for allowed addresses only, https for all.
//   - It follows no redirect, uses no proxy, and keeps no cookie.
//   - Whatever the other side does, a request ends in time and reads a bounded answer.
package webhookhttp
