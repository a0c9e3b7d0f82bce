// Package verify checks proof documents of draws offline, and computes everything again.
//
//	form ─▶ rules ─▶ commitment  sold-list  count  root  freeze-time  freeze-hash
//	              ─▶ chain  round  signature  randomness
//	              ─▶ winners  trust
//	with values that the user noted: noted-commitment  noted-freeze-hash
//	with a proof of purchase:       purchase-form  purchase-campaign  inclusion
//	with another proof document:    against
//
// docs/draw.md has the meaning of each check. A check takes its inputs as they stand in
// the document, so one fault fails few checks. A check that depends on a fault is not
// made, and never counts as verified. The package needs no clock, network or settings.
//
// It is one of three verifiers that share no code above the arithmetic of a draw. The
// others are the page /verify and the script in docs/draw.md.
package verify
