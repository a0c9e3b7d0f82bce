// Package scheduler runs the sweeps of package recovery on a clock. Of several
// schedulers one leads at a time, by a redsync lock that it keeps extending and
// gives up on when it is lost. The lock only spares work: two leaders do no harm,
// and while Redis cannot say who leads, everybody sweeps.
package scheduler
