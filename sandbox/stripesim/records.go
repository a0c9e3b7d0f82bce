package stripesim

import (
	"encoding/json"
	"fmt"
)

// record is an object in the journal.
type record struct {
	Kind  string          `json:"k"`
	ID    string          `json:"i,omitempty"`
	Value json.RawMessage `json:"v"`
}

// apply puts a record of the journal into the state.
func (s *state) apply(r record) error {
	var err error
	read := func(into any) {
		err = json.Unmarshal(r.Value, into)
	}
	switch r.Kind {
	case "intent":
		v := new(intent)
		if read(v); err == nil {
			replace(&s.intents, v)
			s.wake(v.ID, v.Ends, v.Releases)
		}
	case "charge":
		v := new(charge)
		if read(v); err == nil {
			replace(&s.charges, v)
			s.wake(v.ID, v.Disputes)
		}
	case "refund":
		v := new(refund)
		if read(v); err == nil {
			replace(&s.refunds, v)
			s.wake(v.ID, v.Ends)
		}
	case "dispute":
		v := new(dispute)
		if read(v); err == nil {
			replace(&s.disputes, v)
		}
	case "event":
		v := new(event)
		if read(v); err == nil {
			replace(&s.events, v)
		}
	case "movement":
		v := new(movement)
		if read(v); err == nil {
			replace(&s.movements, v)
		}
	case "delivery":
		var d sending
		if read(&d); err == nil {
			if e := s.events.by[r.ID]; e != nil {
				e.Sendings, e.delivery = d.Sendings, d.delivery
			}
			return nil // its event has been counted
		}
	case "key":
		v := new(answer)
		if read(v); err == nil {
			s.keys[r.ID] = v
		}
	case "clock":
		read(&s.ahead)
	default:
		err = fmt.Errorf("a record of kind %q", r.Kind)
	}
	if err != nil {
		return err
	}
	s.measure(r.Kind+r.ID, len(r.Value))
	return nil
}

// replace puts an object that was read from the journal: the same pointer stays in
// the list, so that a long journal is read in time that grows with its length only.
func replace[T interface {
	entry
	*E
}, E any](c *collection[T], v T) {
	if old, known := c.by[v.id()]; known {
		*old = *v
		return
	}
	c.put(v)
}

// measure keeps account of the memory that objects take.
func (s *state) measure(id string, size int) {
	s.bytes += int64(size - s.sizes[id])
	s.sizes[id] = size
}

func (s *state) forget(kind string, ids ...string) {
	for _, id := range ids {
		s.bytes -= int64(s.sizes[kind+id])
		delete(s.sizes, kind+id)
	}
}

// records returns everything, for a new journal.
func (s *state) records() []record {
	all := []record{encode("clock", "", s.ahead)}
	for _, v := range s.intents.list {
		all = append(all, encode("intent", v.ID, v))
	}
	for _, v := range s.charges.list {
		all = append(all, encode("charge", v.ID, v))
	}
	for _, v := range s.refunds.list {
		all = append(all, encode("refund", v.ID, v))
	}
	for _, v := range s.disputes.list {
		all = append(all, encode("dispute", v.ID, v))
	}
	for _, v := range s.movements.list {
		all = append(all, encode("movement", v.ID, v))
	}
	for _, v := range s.events.list {
		all = append(all, encode("event", v.ID, v))
	}
	for key, v := range s.keys {
		all = append(all, encode("key", key, v))
	}
	return all
}

// encode cannot fail: our own structs have nothing that JSON has not.
func encode(kind, id string, v any) record {
	value, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return record{Kind: kind, ID: id, Value: value}
}
