// Package webhook owns endpoints of apps, events, and a delivery of each event per
// endpoint.
//
//		pending ─▶ delivered
//		   ▲  └──▶ failed      tried for the last time, or the endpoint was disabled
//		   └─ replay ─┘
//
//	  - Triggers write events in the transaction of their effect, for every writer of a
//	    table. [QueueEvents] writes events that no table has.
//	  - The id of an event is that of its messages. Its payload is stored before it is first
//	    sent, and never changes.
//	  - Endpoints are agenda items, see package agenda: a sender, or a client that fetches, has
//	    the lease of its endpoint.
//	  - An endpoint gets events of its own client's resources and of every campaign, from
//	    its creation on, and older ones by replay.
//	  - A disabled endpoint gets nothing; its events are kept for a replay.
//
// Locks: endpoints, then deliveries; both last, after jobs and outbox messages. Events
// lock no endpoint.
package webhook
