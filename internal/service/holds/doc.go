// Package holds keeps positions for users: it makes holds, extends them, takes
// them back, and ends those whose time is over.
//
//	taken a moment ago? ─▶ precheck: a retry? too much? ─▶ queue at the lock ─▶ one transaction for all at hand
//	   (this process)          (a read)                       (Redis)         lock campaign ─▶ end holds that are over ─▶ decide ─▶ write
//
// Only the last step counts. It is the same as in a sale: the campaign's row is
// locked, holds that are over are ended, usage and positions are read, and every
// UPDATE names the version it expects. The steps before it keep crowds away from
// Postgres, and no promise needs them:
//
//   - A position that was found taken is remembered for a second at most, and
//     never beyond its deadline. Who asks for it, also after the lock, is refused
//     once its idempotency key is known not to be that of the hold itself; keys
//     are looked up together.
//   - The precheck answers retries, and refuses users who hold too much, before
//     they take a lock that others wait for.
//   - Of those who want the same position one at a time gets its lock. Who cannot
//     get it, because Redis is away or the queue is long, goes on without.
//
// What is refused before the transaction is not recorded under its idempotency
// key: asking again with the same key is asking anew.
package holds
