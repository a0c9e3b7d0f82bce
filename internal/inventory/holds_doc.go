// Package holds makes, extends, releases and expires holds ([Service], [Expire]).
//
//	known to be taken? ─▶ precheck: retry? over a limit? ─▶ wait for the lock ─▶ one transaction for many requests
//	  (this process)          (a read)                        (Redis)          lock campaign ─▶ end holds that are over ─▶ decide ─▶ write
//
// Only the transaction guards. It locks the campaign's row, ends holds that are over,
// reads usage and positions, and names the expected version in every UPDATE. The steps
// before it save work when many users want the same positions:
//
//   - A position that was found taken is remembered for at most a second, and never beyond
//     its deadline. Requests for it are refused at once, unless their idempotency key
//     shows that they are retries.
//   - The precheck answers retries, and refuses users over a limit.
//   - Requests for the same position get its lock one after the other. Without the lock a
//     request goes on.
//
// A refusal before the transaction is not recorded under the idempotency key: the next
// request with that key is a new one.
package inventory
