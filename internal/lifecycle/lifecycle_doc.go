// Package lifecycle creates, changes, publishes, pauses and resumes campaigns, and blocks positions ([Service]).
//
// Each is one transaction, and all but a change take effect once per idempotency key.
// Publication fixes the rules of the draw by a commitment (package fairdraw), makes the
// positions in a secret random order, and puts the campaign on sale. This package never
// sells and never draws.
package lifecycle
