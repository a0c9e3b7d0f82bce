// Package holds keeps positions for users. A [Service] makes, extends and releases
// holds; [Expire] ends those that are over.
//
//	known to be taken? ─▶ precheck: retry? over a limit? ─▶ wait for the lock ─▶ one transaction for many requests
//	  (this process)          (a read)                        (Redis)          lock campaign ─▶ end holds that are over ─▶ decide ─▶ write
//
// Only the transaction guards anything. It locks the campaign's row, ends holds that
// are over, reads usage and positions, and names the expected version in every
// UPDATE. The steps before it only save work in Postgres when many users want the
// same positions:
//
//   - A position that was found taken is remembered for at most a second, and never
//     beyond its deadline. Requests for it are refused at once, before and after the
//     lock, unless their idempotency key shows that they are retries.
//   - The precheck answers retries and refuses users over a limit, before they wait
//     for a lock.
//   - Requests for the same position get its lock one after the other. A request that
//     cannot get the lock, because Redis is down or too many wait, goes on without.
//
// A refusal before the transaction is not recorded under the idempotency key: the
// next request with that key is a new one.
package holds
