// Package fairdraw is the draw procedure triprize-draw/1, as pure functions.
//
// Publication commits to rules and a secret. The freeze fixes the sold list as a Merkle
// root. The winners follow from both, and from the beacon's round, by HMAC-SHA-256.
// Anybody with the inputs can repeat every step, so the results of this version never
// change. docs/draw.md specifies every byte.
//
//	rules ──canonical──┐
//	secret ────────────┼─▶ Commitment          (published before the sale)
//	sold list ──Tree───┴─▶ FreezeRecord        (published before the round)
//	secret, root, randomness ─▶ Entropy ─▶ Stream ─▶ Select
//
// A frozen campaign has a [List] for everybody ([WriteList], [ReadList]). A draw leaves a
// [Proof] for everybody ([WriteProof], [ReadProof]) and a [PurchaseProof] for each buyer.
// Lists are read and written line by line. A document has one spelling; every other one is
// a [FormError].
//
// Integers are big-endian, strings are UTF-8, H is SHA-256. testdata/draw-vectors.json
// comes from an independent implementation. testdata/proof-vectors.json is made here, and
// the script in docs/draw.md checks it.
package fairdraw
