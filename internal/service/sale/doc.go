// Package sale sells positions: one transaction settles many purchase jobs of
// any number of campaigns.
//
//		lock ─▶ read ─▶ decide ─▶ find free positions ─▶ allocate ─▶ write ─▶ freeze what is sold out
//
//	  - lock: the campaigns, by id, passing over those that another worker has
//	    (their jobs come back as Busy).
//	  - read, in later statements: campaigns, the jobs that are still queued, what
//	    limited users have already.
//	  - decide in the order of arrival: state, pause, window, limit. A refusal is
//	    an outcome of its job like a sale is.
//	  - allocate: each request takes the first free positions by rank, all or nothing.
//	  - write: positions, purchases, counters and the outcomes of the jobs. Every
//	    statement must touch exactly the rows it means, or all is rolled back.
//	  - freeze: the transaction that sells the last position moves the campaign to
//	    drawing, binds the sold list by its Merkle root and inserts the draw job.
//
// Cancel takes one sale back, while the list is not frozen: it waits for the
// campaign like a batch does, and is decided on what it finds then.
//
// So a job is final exactly when its effect is committed, whoever delivers it
// how often. The transaction is READ COMMITTED: the campaign's row lock makes
// sales of one campaign take turns, and the batch makes a turn worth taking.
package sale
