// Package recovery has the sweeps: each does the work that a crash or a deadline left
// behind.
//
// A [Sweeper] runs them. Each is bounded, and may run in several processes at once: its
// changes are guarded in SQL.
//
//	expired-holds           end holds that are over
//	expired-authorizations  end authorizations that are over
//	expired-reservations    give up payments past their deadline
//	due-items               enqueue tasks for agenda items that are due, and for events of the provider that wait; escalate what waits for long
//	missed-events           ask the provider for events whose webhooks did not come
//	missing-permissions     ask the provider what its key may do
//	reconciliation          compare the provider's balance of closed days with our books
//	stale-locks             release execution locks that are not renewed
//	stuck-draws             make a draw job for campaigns to be drawn that have none
//	ended-sales             begin the draw of a campaign whose sale has ended, or cancel it, as its policy says
//	lost-jobs               issue messages again whose task is neither queued nor with a live worker
//	old-records             delete records past their retention, and positions that will never be published
//	audit                   check the invariants on a part of the rows, and store what breaks them
//
// No promise depends on the time of a sweep, only on its running at some time.
package recovery
