// Package campaigncancel cancels campaigns: a [Canceller] ends the sale at once, and then gives
// every purchase back by the way it was paid.
//
//		begin ─▶ give back, a chunk of purchases in each transaction ─▶ wait ─▶ settle the job
//
//	  - begin, one transaction under the campaign's lock: pending or active becomes
//	    cancelled, all active holds end, and payments that can still be given up are given
//	    up. From its commit on nothing can be sold, held or reserved: whoever waits for the
//	    lock finds the campaign cancelled.
//	  - give back, at most [Chunk] purchases in a transaction under the lock: positions are
//	    freed, counters go down, the purchase is cancelled, and a refund is written: a
//	    wallet is credited in the same commit, the money of a card goes back at the
//	    provider (service refunds), and for an external payment the refund is listed for
//	    the app. A purchase whose wallet is locked, broken or full is left for later and
//	    delays no other.
//	  - wait: until no payment of the campaign is under way, and every card refund has
//	    succeeded or waits for a person. Money that comes later than that is refunded by
//	    the transaction that concludes its payment.
//
// The job is what resumes: its progress is written with begin, and in each transaction
// that follows. A worker that dies at any point leaves whole transactions behind, and the
// next one begins where it stopped: what was given back is not sold any more, and has its
// refund. A purchase has one refund, by the schema.
//
// A job that advances is not given up. If one is given up that could not, a new request
// to cancel the campaign goes on with what is left.
//
// Failpoints, each with the campaign's id:
//
//	calloff.begun   the campaign is cancelled, and everything is still to be given back
//	calloff.chunk   a chunk is written, and not committed
//	calloff.chunked a chunk is committed
//	calloff.settle  everything is given back, and the job is still queued
package campaigncancel
