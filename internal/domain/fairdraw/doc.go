// Package fairdraw is the draw procedure triprize-draw/1 as pure functions:
// no clock, no database, no random source of its own. Publication commits to
// rules and a secret, sell-out fixes the sold list as a Merkle root, and the
// winners follow from both by HMAC-SHA-256. Anybody with the inputs can repeat
// every step offline, so the results of this version must never change.
//
//	rules ──canonical──┐
//	secret ────────────┼─▶ Commitment          (published before the sale)
//	sold list ──leaves─┴─▶ Root                (recorded at sell-out)
//	secret, root, randomness ─▶ Entropy ─▶ Stream ─▶ Select
//
// All integers are big-endian, strings are UTF-8, H is SHA-256. The test
// vectors in testdata come from an independent implementation.
package fairdraw
