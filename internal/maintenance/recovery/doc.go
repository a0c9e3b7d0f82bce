// Package recovery has the sweeps. A sweep finds what a crash or the passing of time
// has left to do, and does it. A [Sweeper] runs them. Each sweep is bounded, can run
// alone, and can run in several processes at once: its changes are guarded in SQL.
//
//	expired-holds           end holds that are over
//	expired-authorizations  end authorizations that are over
//	expired-reservations    free positions whose payment did not come in time
//	unsettled-payments      enqueue tasks for payments that are due, and for events that wait
//	missed-events           ask the provider for events whose webhooks did not come
//	stale-locks             release execution locks that are no longer renewed
//	stuck-draws             make a new draw job for campaigns to be drawn that have none
//	ended-sales             begin the draw of a campaign whose sale has ended, or make a job that cancels it, as its policy says
//	lost-jobs               issue messages again whose task is neither queued nor with a live worker
//	old-records             delete final jobs and ended holds that are past their retention, and positions that will never be published, until there are none
//
// No promise depends on when a sweep runs, only that it runs at some time.
package recovery
