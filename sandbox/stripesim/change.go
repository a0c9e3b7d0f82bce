package stripesim

import (
	"container/heap"
	"encoding/json"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v85"
)

// change is what one request, or one moment, changes. It is in the journal as one line:
// all of it is remembered after a crash, or nothing. The server's lock is held.
type change struct {
	*state
	server  *Server
	now     time.Time // by the sandbox's clock
	request string    // id of the request; empty: it happened by itself
	key     string    // its idempotency key
	base    string    // URL of the sandbox, as the client calls it

	touched []entry
	records []record
	send    []shipment
}

// unix is now in Unix seconds.
func (c *change) unix() int64 { return c.now.Unix() }

// after is a moment in Unix milliseconds.
func (c *change) after(d time.Duration) int64 { return c.now.Add(d).UnixMilli() }

// touch notes that an object is new or has changed.
func (c *change) touch(v entry) {
	if !slices.Contains(c.touched, v) {
		c.touched = append(c.touched, v)
	}
}

// emit makes an event of what happened to an object of a payment.
func (c *change) emit(kind string, o object, i *intent) {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err) // objects are made of what JSON has
	}
	e := &event{ID: newID("evt"), Created: c.unix(), Type: kind, Object: raw, Request: c.request, Key: c.key, Intent: i.ID}
	c.events.put(e)
	c.touch(e)
	c.server.address(c, e, i)
}

// ripen does what is due by now.
func (c *change) ripen() {
	for len(c.due) > 0 && c.due[0].at <= c.now.UnixMilli() {
		next, _ := heap.Pop(&c.due).(alarm)
		now := c.now.UnixMilli()
		if i := c.intents.by[next.id]; i != nil {
			if i.Ends != 0 && i.Ends <= now {
				c.end(i)
			}
			if i.Releases != 0 && i.Releases <= now {
				c.release(i)
			}
		}
		if r := c.refunds.by[next.id]; r != nil && r.Ends != 0 && r.Ends <= now {
			c.settleRefund(r, r.Becomes)
		}
		if ch := c.charges.by[next.id]; ch != nil && ch.Disputes != 0 && ch.Disputes <= now {
			c.openDispute(ch)
		}
	}
}

// end does what an intent was waiting for: a slow payment succeeds, and money that was
// held for too long is released.
func (c *change) end(i *intent) {
	i.Ends = 0
	c.touch(i)
	switch i.Status {
	case processing:
		c.finish(i, nil)
	case requiresCapture:
		c.cancel(i, "automatic")
	}
}

// commit writes the change to the journal and returns its number there.
func (c *change) commit() (seq int64) {
	for _, v := range c.touched {
		if i, ok := v.(*intent); ok && i.over() && len(i.Held) > 0 {
			c.release(i)
		}
	}
	for _, v := range c.touched {
		var r record
		switch v := v.(type) {
		case *intent:
			r = encode("intent", v.ID, v)
			c.wake(v.ID, v.Ends, v.Releases)
		case *charge:
			r = encode("charge", v.ID, v)
			c.wake(v.ID, v.Disputes)
		case *refund:
			r = encode("refund", v.ID, v)
			c.wake(v.ID, v.Ends)
		case *dispute:
			r = encode("dispute", v.ID, v)
		case *movement:
			r = encode("movement", v.ID, v)
		case *event:
			r = encode("event", v.ID, v)
		}
		c.measure(r.Kind+r.ID, len(r.Value))
		c.records = append(c.records, r)
	}
	seq = c.server.journal.append(c.records)
	c.server.outbound.add(seq, c.send...)
	if c.server.journal.long() {
		c.server.journal.rewrite(c.state.records())
	}
	return seq
}

// keep remembers the answer of an idempotency key.
func (c *change) keep(key string, a *answer) {
	c.keys[key] = a
	r := encode("key", key, a)
	c.measure("key"+key, len(r.Value))
	c.records = append(c.records, r)
}

// apiVersion is the release that the pinned client expects.
const apiVersion = stripe.APIVersion
