// Package recovery is every sweep: the work of finding what a crash left behind
// and bringing it on its way again. Each sweep is bounded, can be run alone, and
// can be run by several processes at once: what it changes is guarded in SQL.
//
//	lost-jobs             messages of the outbox whose task is neither in the queue nor with a live worker
//	expired-holds         holds whose time is over
//	expired-authorizations authorizations whose time is over
//	expired-reservations  positions reserved for a payment that did not come
//	stale-locks           execution locks whose holder is silent
//	stuck-draws           sold-out campaigns that nobody draws
//	old-records           final jobs, and holds that are over, past their retention
package recovery
