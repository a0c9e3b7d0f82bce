// Package webhook owns endpoints of apps, events, and a delivery of each event per endpoint.
//
//		pending ─▶ delivered
//		   ▲  └──▶ failed      tried for the last time, or the endpoint was disabled
//		   └─ replay ─┘
//
//	  - Events are written in the transaction of their effect, by triggers of the tables that
//	    have the effect (migration 00021): whoever writes a purchase tells of it, also a process
//	    of the release before. [QueueEvents] writes those that no table has.
//	  - The id of an event is that of its messages, however often they are sent. Its payload is
//	    stored before it is first sent, and never changes.
//	  - Whoever sends to an endpoint has its lease: [Claim] counts up its version, and every
//	    later write names it, see [ErrFenced].
//	  - An endpoint hears of its own client's resources and of every campaign, and of nothing
//	    that happened before it was made, unless it is replayed.
//	  - One that is disabled gets nothing; what happens meanwhile is kept for a replay.
//
// Locks: endpoints, then deliveries; both last, after jobs and outbox messages. Events lock
// no endpoint. Nobody waits for a lock of this package for longer than a short statement.
package webhook
