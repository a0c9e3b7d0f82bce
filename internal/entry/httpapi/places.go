package httpapi

import (
	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/platform/callerlimit"
)

// places bound what callers keep open. Anonymous callers have half of the places: the others
// are left to callers with a key.
type places struct {
	all       *callerlimit.Limit
	anonymous *callerlimit.Limit
}

func newPlaces(what string, most int) places {
	return places{all: callerlimit.New(what, most), anonymous: callerlimit.New(what+" without a key", max(1, most/2))}
}

// enter takes a place for a caller, who may have most.
func (p places) enter(who call.Caller, most int) (release func(), err error) {
	place, err := p.all.Acquire(who.Client, most)
	if err != nil || who.Role != resource.Anonymous {
		return place, err
	}
	leave, err := p.anonymous.Acquire(who.Client, most)
	if err != nil {
		place()
		if fault.CodeOf(err) == fault.Overloaded { // the server carries more: strangers fill no log with what it is short of
			err = fault.Wrap(fault.RateLimited, err, "callers without a key have all the places that they may have here; try again later")
		}
		return nil, err
	}
	return func() { leave(); place() }, nil
}

// taken returns how many places are taken.
func (p places) taken() int { return p.all.Open() }
