// Package campaigncancel cancels campaigns, and takes back every purchase with its money.
//
//		begin ─▶ take back, a chunk of purchases in each transaction ─▶ wait ─▶ finalize the job
//
//	  - begin, one transaction under the campaign's lock: pending or active becomes
//	    cancelled, active holds end, and payments before their capture are given up. After
//	    its commit nothing can be sold, held or reserved.
//	  - take back, at most [Chunk] purchases in a transaction under the lock: positions are
//	    freed, counters go down, the purchase is cancelled, and a refund is written. A
//	    wallet is credited in the same commit, card money goes back at the provider (service
//	    refunds), and an external refund is listed for the app. A purchase whose wallet is
//	    locked, broken or full is left for later. Of one that is broken or full the job says
//	    so while it waits, with growing pauses.
//	  - wait: until no payment of the campaign is under way, and every card refund has
//	    succeeded or waits for a person. Later money is refunded by the transaction that
//	    concludes its payment.
//
// The job is written with each transaction. After a crash the next worker goes on where
// the last one stopped. A purchase has one refund, by the schema. A job that advances is
// not given up. After one that was given up, a new request to cancel goes on with the
// rest.
//
// Failpoints, each with the campaign's id:
//
//	campaigncancel.begun   the campaign is cancelled, and no purchase is taken back yet
//	campaigncancel.chunk   a chunk is written, and not committed
//	campaigncancel.chunked a chunk is committed
//	campaigncancel.finalize  every purchase is taken back, and the job is still queued
package lifecycle
