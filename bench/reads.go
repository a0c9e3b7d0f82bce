package main

import (
	"context"
	"encoding/json"
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

func (c reads) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, offer{name: "template_read", baseLengths: []int{50}}, func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1); err != nil {
			return r, err
		}
		bought, err := sys.buyOne(ctx, sys.campaigns[0])
		if err != nil {
			return r, err
		}
		request := (&disturber{sys: sys}).request("GET", c.path(sys, bought.ID), "Bearer "+s.appKey, "")
		w := newWindow(sys.meter())
		var odd atomic.Int64
		clients, err := sys.dialAll(ctx, readers)
		if err != nil {
			return r, err
		}
		took, failures, err := w.repeat(ctx, measured, readers, func(i int) caller {
			return func() (bool, error) {
				clients[i].out = request
				a, err := clients[i].send()
				if err == nil && a.status != 200 {
					odd.Add(1)
				}
				return a.status == 200, err
			}
		})
		for _, c := range clients {
			_ = c.conn.Close() // nothing is on its way
		}
		if err != nil {
			return r, err
		}
		r = newResult(len(took), w.elapsed, took)
		r.note("refused or cut", float64(odd.Load())+float64(len(failures)))
		r.noteUsage(w, len(took))
		r.wrong = append(sys.stop(), sys.violations(ctx)...)
		return r, nil
	})
}

// boughtOne is a job that has sold one position.
type boughtOne struct {
	ID     uuid.UUID
	Result struct {
		PurchaseID uuid.UUID `json:"purchase_id"`
	}
}

func (sys *system) buyOne(ctx context.Context, campaign uuid.UUID) (bought boughtOne, err error) {
	c, err := dial(ctx, sys.address, sys.setup.appKey)
	if err != nil {
		return bought, err
	}
	defer c.closeWith(ctx)()
	a, err := c.buy(campaign, paidExternally, "")
	if err == nil {
		err = json.Unmarshal(a.body, &bought)
	}
	return bought, err
}
