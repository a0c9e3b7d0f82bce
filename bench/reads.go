package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// reads measures how often something is read, on 100 connections. Nothing changes
// meanwhile.
type reads struct {
	path func(sys *system, job uuid.UUID) string
}

const readers = 100

func (sys *system) jobPath(job uuid.UUID) string { return "/v1/jobs/" + job.String() }

func (sys *system) campaignPath(uuid.UUID) string {
	return "/v1/campaigns/" + sys.campaigns[0].String()
}

func (c reads) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	sys, err := s.openSale(ctx, offer{"template_read", []int{50}})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if err := sys.serve(ctx, 1); err != nil {
		return r, err
	}
	job, err := sys.buyOnce(ctx)
	if err != nil {
		return r, err
	}
	w := &window{meter: sys.meter()}
	request := (&disturber{sys: sys}).request("GET", c.path(sys, job), "Bearer "+s.appKey, "")
	var mu sync.Mutex
	var took []time.Duration
	var odd atomic.Int64
	var group sync.WaitGroup
	for range readers {
		group.Go(func() {
			mine, wrong := sys.readUntilOver(ctx, w, request)
			odd.Add(int64(wrong))
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	err = w.pass(ctx, measured, nil)
	group.Wait()
	if err != nil {
		return r, err
	}
	r = newResult(len(took), w.elapsed, took)
	r.note("refused or cut", float64(odd.Load()))
	r.noteUsage(w, len(took))
	r.wrong = append(sys.stop(), sys.violations(ctx)...)
	return r, nil
}

// readUntilOver reads on one connection. It returns how long the reads of the window
// took, and how many answers were not 200.
func (sys *system) readUntilOver(ctx context.Context, w *window, request []byte) (took []time.Duration, odd int) {
	c, err := dial(ctx, sys.address, sys.setup.appKey)
	if err != nil {
		return nil, 1
	}
	defer func() { _ = c.conn.Close() }() // nothing is on its way
	for !w.isOver() && ctx.Err() == nil {
		start := time.Now()
		c.out = request
		a, err := c.send()
		switch {
		case err != nil:
			return took, odd + 1
		case a.status != 200:
			odd++
		case w.isOpen():
			took = append(took, time.Since(start))
		}
	}
	return took, odd
}

// buyOnce buys a position and returns the job.
func (sys *system) buyOnce(ctx context.Context) (uuid.UUID, error) {
	c, err := dial(ctx, sys.address, sys.setup.appKey)
	if err != nil {
		return uuid.Nil, err
	}
	defer func() { _ = c.conn.Close() }() // nothing is on its way
	a, err := c.purchase(sys.campaigns[0], "")
	if err != nil {
		return uuid.Nil, err
	}
	var made struct{ ID uuid.UUID }
	err = json.Unmarshal(a.body, &made)
	return made.ID, err
}
