package stripesim

import (
	"container/heap"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"
)

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
	due   schedule[alarm]
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

// head is that of a new object.
func (c *change) head(prefix string) head { return head{newID(prefix), c.unix()} }

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
	e := &event{head: c.head("evt"), Type: kind, Object: raw, Request: c.request, Key: c.key, Intent: i.ID}
	c.events.put(e)
	c.touch(e)
	c.server.enqueue(c, e, i)
}

// runDue does what is due by now.
func (c *change) runDue() {
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
		r := encode(v.kind(), v.id(), v)
		c.wake(v.id(), v.alarms()...)
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

// storeAnswer stores the answer of an idempotency key.
func (c *change) storeAnswer(key string, a *answer) {
	c.keys[key] = a
	r := encode("key", key, a)
	c.measure("key"+key, len(r.Value))
	c.records = append(c.records, r)
}

// apiVersion is the release that the pinned client expects.
const apiVersion = stripe.APIVersion

// schedule is a heap of what is due at a moment.
type schedule[T interface{ due() (at, order int64) }] []T

func (s schedule[T]) Len() int      { return len(s) }
func (s schedule[T]) Swap(i, j int) { s[i], s[j] = s[j], s[i] }

// Less implements heap.Interface.
func (s schedule[T]) Less(i, j int) bool {
	at, order := s[i].due()
	otherAt, otherOrder := s[j].due()
	return at < otherAt || at == otherAt && order < otherOrder
}

// Push implements heap.Interface.
func (s *schedule[T]) Push(v any) {
	if one, ok := v.(T); ok {
		*s = append(*s, one)
	}
}

// Pop implements heap.Interface.
func (s *schedule[T]) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// alarm is a moment at which an object changes without a request. It may be out of date: its
// handler checks the object.
type alarm struct {
	at int64 // Unix milliseconds
	id string
}

func (a alarm) due() (at, order int64) { return a.at, 0 }

// wake sets alarms for an object; 0 is none.
func (s *state) wake(id string, moments ...int64) {
	for _, at := range moments {
		if at != 0 {
			heap.Push(&s.due, alarm{at, id})
		}
	}
}

// nextAlarm returns the moment of the next alarm, in Unix milliseconds.
func (s *state) nextAlarm() int64 {
	if len(s.due) == 0 {
		return math.MaxInt64
	}
	return s.due[0].at
}
