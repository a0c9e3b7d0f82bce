// Package draw draws the prizes of a campaign whose sale is over, exactly once.
//
//	claim ─▶ load ─▶ check ─▶ select ─▶ record
//
// A [Drawer] does these steps:
//
//   - claim: take the execution lock of the campaign. Its version grows with every
//     claim. When another worker has it, the job is tried again later ([ErrBusy]). A
//     worker that dies loses it after the lease.
//   - load and check: the sold list must still have the root recorded at sell-out,
//     and rules and secret must still match the commitment.
//   - select: package fairdraw selects the winners. It only calculates.
//   - record: one transaction ends the campaign, inserts the draw, sets the prizes
//     and settles the job. Its first statement fails when the lock is lost. The
//     primary key of draws is a second guard.
//
// A draw that fails changes nothing and releases its lock. A job for a campaign that
// is drawn already gets the same result. This package never sells or moves money.
package draw
