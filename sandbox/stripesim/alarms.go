package stripesim

import (
	"container/heap"
	"math"
)

// alarms is a heap of moments at which something happens to an object by itself. An
// alarm may be out of date: its handler looks at the object.
type alarms []alarm

type alarm struct {
	at int64 // Unix milliseconds
	id string
}

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at < a[j].at }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *alarms) Push(v any) {
	if one, ok := v.(alarm); ok {
		*a = append(*a, one)
	}
}

// Pop implements heap.Interface.
func (a *alarms) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

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
