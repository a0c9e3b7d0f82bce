// Package recovery is every sweep: the work of finding what a crash left behind
// and bringing it on its way again. Each sweep is bounded, can be run alone, and
// can be run by several processes at once: what it changes is guarded in SQL.
//
//	lost-jobs             a ring in the outbox whose task is neither waiting nor with a live worker
//	expired-holds         holds that are over: in nobody's way, but still on the counters
//	expired-authorizations money that wallets hold for nobody any more
//	expired-reservations  positions reserved for a payment that did not come
//	stale-locks           execution locks whose holder is silent
//	stuck-draws           sold-out campaigns that nobody draws
//	old-records           final jobs, and holds that are over, past their retention
package recovery
