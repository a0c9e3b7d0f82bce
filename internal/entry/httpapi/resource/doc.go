// Package resource makes the documents of the API: campaign, hold, purchase, job, wallet.
//
// Answers, streams and webhooks all use it, so they show the same. A document leaves out
// some fields for some callers: see [Role].
package resource
