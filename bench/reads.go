package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// reads measures how often a job, or a campaign, is read on 100 connections, or how often a purchase is repeated
// with its key. Nothing changes meanwhile.
type reads struct{ campaign, replays bool }

const readers = 100

func (c reads) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, offer{name: "template_read", baseLengths: []int{50}}, func(sys *system) (r result, err error) {
		if err := sys.serve(ctx, 1, "TRIPRIZE_LIMITS_USER_RATE=0"); err != nil { // one user repeats all
			return r, err
		}
		bought, err := sys.buyOne(ctx, sys.campaigns[0], s.appKey)
		if err != nil {
			return r, err
		}
		method, path, body := "GET", "/v1/jobs/"+bought.ID.String(), ""
		if c.campaign {
			path = "/v1/campaigns/" + sys.campaigns[0].String()
		}
		if c.replays {
			method, path, body = "POST", "/v1/campaigns/"+sys.campaigns[0].String()+"/purchases", `{"user_id":"somebody"`+paidExternally
		}
		clients := make([]*connection, readers)
		for i := range clients {
			if clients[i], err = dial(ctx, sys.address, s.appKey, ""); err != nil {
				return r, err
			}
			if c.replays {
				clients[i].key = clients[i].id()
			}
			defer clients[i].closeWith(ctx)()
		}
		w := newWindow(sys.meter())
		r, err = w.repeat(ctx, measured, readers, func(i int) caller {
			return func() (bool, error) {
				a, err := clients[i].send(method, path, body)
				if err == nil && a.outcome() != succeeded && (c.replays || a.status != 200) {
					err = fmt.Errorf("%d %s", a.status, a.body)
				}
				return true, err
			}
		})
		r.wrong = append(r.wrong, append(sys.stop(), sys.violations(ctx)...)...)
		return r, err
	})
}

// boughtOne is a job that has sold one position.
type boughtOne struct {
	ID     uuid.UUID
	Result struct {
		PurchaseID uuid.UUID `json:"purchase_id"`
	}
}

func (sys *system) buyOne(ctx context.Context, campaign uuid.UUID, key string) (bought boughtOne, err error) {
	c, err := dial(ctx, sys.address, key, "")
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
