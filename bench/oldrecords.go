package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// oldRecords measures purchases while the scheduler deletes a million expired jobs, as
// the strangers do, and how many it deletes.
type oldRecords struct{}

const expiredJobs = 1_000_000

// deletedEach is the figure with the rate of the sweep.
const deletedEach = "jobs deleted/s"

// longestSweep is more time than the sweep may take.
const longestSweep = 3 * time.Minute

func (oldRecords) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	o := quietAndNoisy()
	o.name = "template_expired"
	if err := s.makeTemplate(ctx, o.name, func(db *pgxpool.Pool) error {
		if err := s.publish(ctx, db, o.baseLengths); err != nil {
			return err
		}
		return fillJobs(ctx, db, expiredJobs, -20*24*time.Hour)
	}); err != nil {
		return r, err
	}
	sys, err := s.openSale(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if err := sys.serveUnswept(ctx, 1); err != nil {
		return r, err
	}
	y := yardstick{address: sys.address, key: s.appKey, campaign: sys.campaigns[quietCampaign]}
	if _, err := y.measure(ctx, warmUp(measured)); err != nil {
		return r, err
	}
	quiet, err := y.measure(ctx, measured)
	if err != nil {
		return r, err
	}
	start := time.Now()
	if _, err := sys.fleet.StartScheduler(); err != nil {
		return r, err
	}
	wait(ctx, runUp, nil)
	disturbed, err := y.measure(ctx, measured)
	if err != nil {
		return r, err
	}
	r = compare(quiet, disturbed, measured)
	if err := sys.awaitSwept(ctx, start.Add(longestSweep)); err != nil {
		r.wrong = append(r.wrong, err.Error())
	}
	r.note(deletedEach, perSecond(expiredJobs, time.Since(start)))
	r.wrong = append(append(r.wrong, sys.stop()...), sys.violations(ctx)...)
	return r, nil
}

// awaitSwept waits until there are no expired jobs.
func (sys *system) awaitSwept(ctx context.Context, deadline time.Time) error {
	for {
		var left bool // the newest is deleted last
		err := sys.db.QueryRow(ctx, `SELECT (SELECT expires_at FROM jobs WHERE expires_at < now() ORDER BY expires_at DESC LIMIT 1) IS NOT NULL`).Scan(&left)
		switch {
		case err != nil:
			return err
		case !left:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("expired jobs are left after %s", longestSweep)
		}
		wait(ctx, time.Second/4, nil)
	}
}
