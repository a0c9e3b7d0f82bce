// Package draw draws the prizes of a campaign whose sale is over, exactly once.
//
//	claim ─▶ freeze ─▶ timestamp ─▶ await ─▶ fetch ─▶ choose ─▶ record
//	           │          │         │        │
//	           └──────────┴── wait: give the lock back, come again later
//
// A [Drawer] does each step whose result is not stored yet:
//
//   - claim: take the execution lock of the campaign and count its version up. If another
//     worker has it, the job is tried again later ([ErrBusy]). A dead worker loses it
//     after the lease.
//   - freeze: open the secret, compare it with the commitment, read the sold list and
//     store the freeze record. With a beacon the record names the round and has the
//     secret.
//   - timestamp: the rules' authorities timestamp the record, until a while before the round
//     is due.
//   - await and fetch: wait for the round, get it from a relay, verify and store it.
//   - choose: the list must still have the frozen root; package fairdraw selects the
//     winners.
//   - record: one transaction ends the campaign, inserts the draw, sets the prizes and
//     finalizes the job.
//
// The first statement of every transaction is the fence: it fails when the lock is lost.
// The primary keys of freezes and draws are a second guard.
//
// A draw that waits is a [Waiting]: the campaign stays drawing, and no lock, slot or
// connection is kept. Only the database's clock says what is due. A draw that fails
// releases its lock, and its failure is counted. Few draws at a time ask relays that hang. A job for a drawn campaign
// gets the same result. This package never sells or moves money, and never replaces a
// round by something weaker.
//
// [RotateSecrets] seals the secrets of all campaigns with another key. [CheckKeys] tells
// whether a process has the keys of the others.
package drawing
