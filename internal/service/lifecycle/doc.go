// Package lifecycle makes campaigns and moves them up to the day they are sold
// out: create, change, publish, pause, resume. Each is one transaction, and each
// command takes effect once per idempotency key.
//
// Publication binds a draft to its rules by a commitment (package fairdraw), lays
// out the positions in a secret order, and puts the campaign on sale.
package lifecycle
