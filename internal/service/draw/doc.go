// Package draw draws the prizes of a campaign whose sale is over, exactly once.
//
//	claim ─▶ freeze ─▶ witness ─▶ await ─▶ fetch ─▶ choose ─▶ record
//	           │          │         │        │
//	           └──────────┴── wait: give the lock back, come again later
//
// A [Drawer] does these steps, each one whose result is not stored yet:
//
//   - claim: take the execution lock of the campaign. Its version grows with every
//     claim. When another worker has it, the job is tried again later ([ErrBusy]). A
//     worker that dies loses it after the lease.
//   - freeze: open the secret, compare it with the commitment, read the sold list and
//     store the freeze record. With a beacon the record names the round and has the
//     secret, so from here on no key is needed.
//   - witness: authorities that the rules name timestamp the record, until a while before
//     the round is due.
//   - await and fetch: wait for the round, get it from a relay, verify and store it.
//   - choose: the list must still have the frozen root; package fairdraw selects the
//     winners. It only calculates.
//   - record: one transaction ends the campaign, inserts the draw, sets the prizes
//     and settles the job.
//
// The first statement of every transaction is the fence: it fails when the lock is lost.
// The primary keys of freezes and draws are a second guard, and hold without the first.
//
// What must be waited for is a [Waiting]: the campaign stays drawing and says for what it
// waits, and nothing is held meanwhile. Only the database's clock says what is due. A
// draw that fails releases its lock. Relays that hang are asked by few at once, and seldom,
// so that draws which need none go on beside them. A job for a campaign that is drawn already gets the
// same result. This package never sells or moves money, and never puts something weaker
// in the place of a round.
//
// [RotateSecrets] seals the secrets of all campaigns with another key.
package draw
