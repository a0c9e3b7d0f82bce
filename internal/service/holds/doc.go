// Package holds keeps positions for users: it makes holds, extends them, takes
// them back, and ends those whose time is over.
//
//	taken a moment ago? ─▶ known? limits? ─▶ queue at the lock ─▶ one transaction for all at hand
//	  (this process)         (a read)            (Redis)          campaign ─▶ due holds ─▶ decide ─▶ write
//
// What counts is the last step, the same as in a sale: the campaign's row is
// locked, holds that are over are ended, limits and positions are read, and every
// UPDATE names the version it expects. The steps before it keep crowds off
// Postgres, and none of them is needed for any promise:
//
//   - a position that was found taken is remembered for a second at most, and
//     never beyond its deadline; who asks for it, also after the lock, costs a look
//     at the idempotency key, which may be that of the hold, together with others;
//   - the read answers retries, and refuses those who hold too much before they
//     take a lock that others wait for;
//   - of those who want the same position one at a time gets its lock. Who cannot
//     get it, because Redis is away or the queue is long, goes on without.
//
// What is refused before the transaction is not recorded under its idempotency
// key: asking again with the same key is asking anew.
package holds
