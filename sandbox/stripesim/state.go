package stripesim

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

type entry interface {
	id() string
	at() int64 // Unix seconds when it was made
}

// collection keeps objects in the order of their making.
type collection[T entry] struct {
	by   map[string]T
	list []T
}

func newCollection[T entry]() collection[T] { return collection[T]{by: make(map[string]T)} }

// put adds an object, or replaces it.
func (c *collection[T]) put(v T) {
	if _, known := c.by[v.id()]; known {
		at := slices.IndexFunc(c.list, func(o T) bool { return o.id() == v.id() })
		c.list[at] = v
	} else {
		c.list = append(c.list, v)
	}
	c.by[v.id()] = v
}

// drop removes objects and returns their ids.
func (c *collection[T]) drop(is func(T) bool) (gone []string) {
	c.list = slices.DeleteFunc(c.list, func(v T) bool {
		if !is(v) {
			return false
		}
		gone = append(gone, v.id())
		delete(c.by, v.id())
		return true
	})
	return gone
}

// state is everything that the sandbox remembers. Its server's lock guards it.
type state struct {
	intents   collection[*intent]
	charges   collection[*charge]
	refunds   collection[*refund]
	disputes  collection[*dispute]
	events    collection[*event]
	movements collection[*movement]
	keys      map[string]*answer // by idempotency key
	ahead     time.Duration      // by which the clock was moved forward

	sizes map[string]int // bytes in the journal, by id
	bytes int64
	due   alarms
}

func newState() *state {
	return &state{
		intents: newCollection[*intent](), charges: newCollection[*charge](), refunds: newCollection[*refund](),
		disputes: newCollection[*dispute](), events: newCollection[*event](), movements: newCollection[*movement](), keys: make(map[string]*answer), sizes: make(map[string]int),
	}
}

// prune forgets what is older than Stripe, or a sandbox, remembers. now is in Unix seconds.
func (s *state) prune(now int64) {
	old := now - int64(objectLife/time.Second)
	s.forget("event", s.events.drop(func(e *event) bool { return e.Created < old })...)
	s.forget("movement", s.movements.drop(func(m *movement) bool { return m.Created < old })...)
	for key, a := range s.keys {
		if a.Created < now-int64(keyLife/time.Second) {
			delete(s.keys, key)
			s.forget("key", key)
		}
	}
	alive := make(map[string]bool)
	for _, r := range s.refunds.list {
		if r.Created >= old || r.Status == pending || r.Status == requiresAction {
			alive[r.Intent] = true
		}
	}
	for _, d := range s.disputes.list {
		if d.Created >= old || d.Status == needsResponse || d.Status == inquiring {
			alive[d.Intent] = true
		}
	}
	dead := func(id string) bool {
		i := s.intents.by[id]
		return i == nil || (i.Created < old && i.over() && !alive[id])
	}
	s.forget("refund", s.refunds.drop(func(r *refund) bool { return dead(r.Intent) })...)
	s.forget("dispute", s.disputes.drop(func(d *dispute) bool { return dead(d.Intent) })...)
	s.forget("charge", s.charges.drop(func(c *charge) bool { return dead(c.Intent) })...)
	s.forget("intent", s.intents.drop(func(i *intent) bool { return dead(i.ID) })...)
}

// byID renders any object by its id; nil if there is none.
func (s *state) byID(id string, now int64) object {
	if v := s.intents.by[id]; v != nil {
		return v.render()
	}
	if v := s.charges.by[id]; v != nil {
		return v.render()
	}
	if v := s.refunds.by[id]; v != nil {
		return v.render()
	}
	if v := s.disputes.by[id]; v != nil {
		return v.render(now)
	}
	if strings.HasPrefix(id, "po_") {
		for _, m := range s.movements.list {
			if m.Source == id {
				return m.renderPayout()
			}
		}
	}
	return nil
}

func (s *state) intent(id string) (*intent, *apiError) {
	if i := s.intents.by[id]; i != nil {
		return i, nil
	}
	return nil, missing(http.StatusNotFound, "payment_intent", "intent", id)
}
