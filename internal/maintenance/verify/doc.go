// Package verify checks proof documents of draws, offline: with the document alone, and a
// public chain's hash, everything is computed again.
//
//	form ─▶ rules ─▶ commitment  sold-list  count  root  freeze-time  freeze-hash
//	              ─▶ chain  round  signature  randomness  witness
//	              ─▶ winners  trust
//	with a proof of purchase:       purchase-form  purchase-campaign  inclusion
//	with another proof document:    against
//
// docs/draw.md says what each check covers. A check takes its inputs from the document as
// they stand there, so one wrong thing fails few checks; what needs something that is wrong
// is not made, and never counts as verified. The package asks no clock, no network and no
// settings: whoever runs it need not trust the system that made the document.
//
// It is one of three verifiers that share no code above the arithmetic of a draw; the
// others are the page /verify and the script in docs/draw.md.
package verify
