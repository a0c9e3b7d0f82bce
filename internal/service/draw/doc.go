// Package draw draws the prizes of a sold-out campaign, exactly once.
//
//		claim ─▶ load ─▶ check ─▶ select ─▶ record
//
//	  - claim: the execution lock of the campaign's row, with a version that grows
//	    with every claim. Who finds it taken comes back later; who dies loses it
//	    after the lease.
//	  - load and check: the frozen list must still have the root recorded at
//	    sell-out, and rules and secret must still be those committed to.
//	  - select: package fairdraw, nothing but arithmetic.
//	  - record: one transaction that begins with the fence (lock and version must
//	    still be ours) and ends the campaign, inserts the draw, sets the prizes and
//	    settles the job. The primary key of draws says "once" a second time.
//
// A draw that failed has released its lock and changed nothing. A job for a
// campaign that is drawn already gets the same result.
package draw
