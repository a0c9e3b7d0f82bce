package stripe

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
)

// burstPart of a second's rate may go at once.
const burstPart = 10

// pace lets requests of a process go one by one, below a rate for all and one for each
// kind. Requests of one kind wait in a line, in the order of their arrival. A caller that
// cannot have a turn in time is told at once, and when to come back.
//
// Stripe counts requests of each second. With a rate of 20 a second and a burst of 2, no
// second has more than 23; the rest up to Stripe's 25 is for requests that are late on
// their way and arrive together with others.
type pace struct {
	all     *rate.Limiter
	lines   map[call]*line
	metrics *metrics
}

// line is where requests of one kind wait.
type line struct {
	limit   *rate.Limiter
	first   chan struct{} // has one place: the first of the line, so that no line takes turns of all in advance
	waiting atomic.Int64
}

func newPace(settings config.Stripe, m *metrics) *pace {
	limit := func(perSecond int) *rate.Limiter {
		return rate.NewLimiter(rate.Limit(perSecond), max(1, perSecond/burstPart))
	}
	p := &pace{all: limit(settings.Rate), lines: make(map[call]*line), metrics: m}
	for _, name := range calls {
		p.lines[name] = &line{limit: limit(cmp.Or(settings.EndpointRate, max(settings.Rate/4, 1))), first: make(chan struct{}, 1)}
	}
	return p
}

// wait returns nil when it is the request's turn, else an error of KindLimited. Of the
// time that ctx has left, half is for waiting.
func (p *pace) wait(ctx context.Context, name call) *callError {
	began := time.Now()
	if deadline, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(deadline.Sub(began)/2))
		defer cancel()
	}
	l := p.lines[name]
	defer l.waiting.Add(-1)
	ahead := time.Duration(float64(l.waiting.Add(1)-1) / float64(l.limit.Limit()) * float64(time.Second))
	until, bounded := ctx.Deadline()
	if bounded && began.Add(ahead).After(until) {
		return late(ahead) // those before it alone take longer
	}
	select {
	case l.first <- struct{}{}:
		defer func() { <-l.first }()
	case <-ctx.Done():
		return late(ahead)
	}
	if l.limit.Wait(ctx) != nil || p.all.Wait(ctx) != nil { // refused at once when it would take too long
		return late(ahead)
	}
	p.metrics.waited(name, began)
	return nil
}

// late is the error of a request that had no turn in time: nothing was done.
func late(after time.Duration) *callError {
	return &callError{public: public{Kind: payprovider.KindLimited, Message: "no turn in time: our own pace", RetryAt: later(max(after, time.Second))}}
}
