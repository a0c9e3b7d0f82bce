// Package resource makes the documents of the API from what the stores have: what GET
// shows of a campaign, a hold, a purchase, a job, a wallet. Whoever shows one of them, an
// answer, a stream or a webhook, shows it as this package does, so all show the same.
//
// What a document leaves out depends on who looks: see [Role].
package resource
