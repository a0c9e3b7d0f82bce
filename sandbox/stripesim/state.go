package stripesim

import (
	"cmp"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// state is everything that the sandbox remembers. Its server's lock guards it.
type state struct {
	by    map[string]entry   // by id
	lists map[string][]entry // by kind, in the order of their making
	keys  map[string]*answer // by idempotency key
	ahead time.Duration      // by which the clock was moved forward
	due   []alarm            // the next first
}

func newState() *state {
	return &state{by: make(map[string]entry), lists: make(map[string][]entry), keys: make(map[string]*answer)}
}

// put adds a new object.
func (s *state) put(v entry) {
	s.by[v.id()] = v
	s.lists[v.kind()] = append(s.lists[v.kind()], v)
}

// find returns an object by its id; nil if there is none of this kind.
func find[T entry](s *state, id string) T {
	v, _ := s.by[id].(T)
	return v
}

// known is find for what a request names.
func known[T entry](s *state, id string, status int, param string) (T, *apiError) {
	v, ok := s.by[id].(T)
	if !ok {
		return v, missing(status, v.kind(), param, id)
	}
	return v, nil
}

// each returns the objects of a kind, the oldest first.
func each[T entry](s *state) iter.Seq[T] {
	return func(yield func(T) bool) {
		var kind T
		for _, v := range s.lists[kind.kind()] {
			if one, ok := v.(T); !ok || !yield(one) {
				return
			}
		}
	}
}

// prune forgets what is older than Stripe, or a sandbox, remembers. now is in Unix seconds.
func (s *state) prune(now int64) {
	old := now - int64(objectLife/time.Second)
	alive := make(map[string]bool)
	for r := range each[*Refund](s) {
		if r.Created >= old || r.Status == pending || r.Status == requiresAction {
			alive[r.Intent] = true
		}
	}
	for d := range each[*dispute](s) {
		if d.Created >= old || d.Status == needsResponse || d.Status == inquiring {
			alive[d.Intent] = true
		}
	}
	dead := func(v entry) bool {
		if v.payment() == "" {
			return v.at() < old
		}
		i := find[*intent](s, v.payment())
		return i == nil || (i.Created < old && i.over() && !alive[i.ID])
	}
	for kind, list := range s.lists {
		s.lists[kind] = slices.DeleteFunc(list, func(v entry) bool {
			if !dead(v) {
				return false
			}
			delete(s.by, v.id())
			return true
		})
	}
	maps.DeleteFunc(s.keys, func(_ string, a *answer) bool { return a.Created < now-int64(keyLife/time.Second) })
}

// byID renders any object by its id; nil if there is none.
func (s *state) byID(id string, now int64) object {
	if v := s.by[id]; v != nil {
		return v.render(now)
	}
	if strings.HasPrefix(id, "po_") {
		for m := range each[*movement](s) {
			if m.Source == id {
				return m.renderPayout()
			}
		}
	}
	return nil
}

// change is what one request, or one moment, changes. It is in the journal as one line:
// all of it is remembered after a crash, or nothing. The server's lock is held.
type change struct {
	*state
	server *Server
	now    time.Time // by the sandbox's clock
	call   *call

	touched []entry
	records []record
	send    []alarm // of events
}

// unix is now in Unix seconds.
func (c *change) unix() int64 { return c.now.Unix() }

// head is that of a new object.
func (c *change) head(prefix string) head { return head{newID(prefix), c.unix()} }

// after is a moment in Unix milliseconds.
func (c *change) after(d time.Duration) int64 { return c.now.Add(d).UnixMilli() }

// add puts a new object into the state.
func (c *change) add(v entry) {
	c.put(v)
	c.touch(v)
}

// touch notes that objects are new or have changed.
func (c *change) touch(all ...entry) {
	for _, v := range all {
		if !slices.Contains(c.touched, v) {
			c.touched = append(c.touched, v)
		}
	}
}

// emit makes an event of what has happened to an object of a payment.
func (c *change) emit(kind string, v entry) {
	c.touch(v)
	e := &event{head: c.head("evt"), Type: kind, Object: encode(v.render(c.unix())), Request: c.call.id, Key: c.call.key}
	c.add(e)
	c.enqueue(e, find[*intent](c.state, v.payment()))
}

// runDue does what is due by now.
func (c *change) runDue() {
	now := c.now.UnixMilli()
	due := func(at int64) bool { return at != 0 && at <= now }
	for len(c.due) > 0 && c.due[0].at <= now {
		next := c.due[0]
		c.due = c.due[1:]
		switch v := c.by[next.id].(type) {
		case nil: // events, or an object that was forgotten
			c.server.send(next.events)
		case *intent:
			if due(v.Ends) {
				c.end(v)
			}
			if due(v.Releases) {
				c.release(v)
			}
		case *Refund:
			if due(v.Ends) {
				c.settleRefund(v, v.Becomes)
			}
		case *charge:
			if due(v.Disputes) {
				c.openDispute(v)
			}
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
		_ = c.charge(i, false, nil) // a decline is in the intent
	case requiresCapture:
		c.cancel(i, "automatic")
	}
}

// commit writes the change to the journal, and lets its events be sent.
func (c *change) commit() error {
	for _, v := range c.touched {
		if i, ok := v.(*intent); ok && i.over() && len(i.Held) > 0 {
			c.release(i)
		}
	}
	for _, v := range c.touched {
		c.records = append(c.records, record{v.kind(), v.id(), encode(v)})
		for _, at := range v.alarms() {
			c.wake(alarm{at: at, id: v.id()})
		}
	}
	if err := c.server.journal.append(c.state, c.records); err != nil {
		return err
	}
	for _, one := range c.send {
		if one.at <= c.now.UnixMilli() {
			c.server.send(one.events)
		} else {
			c.wake(one)
		}
	}
	return nil
}

// wake sets an alarm; at 0 there is none.
func (c *change) wake(a alarm) {
	if c.set(a); len(c.due) > 0 && c.due[0].at == a.at {
		c.server.wake()
	}
}

// alarm is a moment at which an object changes without a request, or events are sent. It may be out
// of date: its handler checks the object.
type alarm struct {
	at     int64    // Unix milliseconds of the sandbox's clock
	id     string   // of the object; empty: events
	events []string // ids
}

// set puts an alarm behind those of the same moment.
func (s *state) set(a alarm) {
	if a.at != 0 {
		at, _ := slices.BinarySearchFunc(s.due, a.at+1, func(o alarm, moment int64) int { return cmp.Compare(o.at, moment) })
		s.due = slices.Insert(s.due, at, a)
	}
}

// getOne answers with an object.
func getOne[T entry](c *change, r *call) (object, *apiError) {
	v, problem := known[T](c.state, r.object, http.StatusNotFound, "id")
	if problem != nil {
		return nil, problem
	}
	return v.render(c.unix()), nil
}
