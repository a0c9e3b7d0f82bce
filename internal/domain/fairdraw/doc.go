// Package fairdraw is the draw procedure triprize-draw/1 as pure functions:
// no clock, no database, no random source of its own. Publication commits to
// rules and a secret, the freeze fixes the sold list as a Merkle root, and the
// winners follow from both, and from the beacon's round, by HMAC-SHA-256.
// Anybody with the inputs can repeat every step offline, so the results of this
// version must never change. docs/draw.md specifies every byte.
//
//	rules ──canonical──┐
//	secret ────────────┼─▶ Commitment          (published before the sale)
//	sold list ──Tree───┴─▶ FreezeRecord        (published before the round)
//	secret, root, randomness ─▶ Entropy ─▶ Stream ─▶ Select
//
// What a draw leaves behind is a [Proof] for everybody, written by [WriteProof] and read
// by [ReadProof], and a [PurchaseProof] for each buyer. Both hold of a long sold list one
// line at a time. A document has one spelling; every other one is a [FormError].
//
// All integers are big-endian, strings are UTF-8, H is SHA-256. The vectors in
// testdata/draw-vectors.json come from an independent implementation; those in
// testdata/proof-vectors.json are made here, and checked by the script in docs/draw.md.
package fairdraw
