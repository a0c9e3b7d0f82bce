package stripe

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/time/rate"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/config"
)

const (
	turnBudget  = 100 * time.Millisecond // for one answer of Redis
	redisRest   = time.Second            // Redis is left alone for it when it was silent three times
	redisTrips  = 3
	aloneShare  = 4  // without Redis a process takes a quarter of the rate, as if there were four
	burstPart   = 10 // a tenth of a second's rate may go at once
	leastPerKey = 1
)

// pace lets requests go one by one, so that all processes together stay below the limits
// of the account. Requests of one kind wait in a line, in the order of their arrival; the
// first of a line asks Redis for all of it. A caller that cannot have a turn in time
// is told at once, and when to come back.
//
// Stripe counts requests of each second. With a rate of 20 a second and a burst of 2, no
// second has more than 22; the rest up to Stripe's 25 is for requests that are late on
// their way and arrive together with others.
type pace struct {
	gcra    *redis_rate.Limiter
	health  *gobreaker.CircuitBreaker[time.Duration] // of Redis
	all     *bucket
	lines   map[call]*line
	metrics *metrics
	budget  time.Duration
}

// bucket is a limit, in Redis and of this process alone.
type bucket struct {
	key   string
	limit redis_rate.Limit
	alone *rate.Limiter
}

// line is where requests of one kind wait.
type line struct {
	bucket
	first   chan struct{} // has one place: the first of the line
	next    time.Time     // of the first of the line: before this moment Redis has no turn
	waiting atomic.Int64
}

func newPace(rdb redis.UniversalClient, namespace string, settings config.Stripe, m *metrics) *pace {
	p := &pace{
		gcra: redis_rate.NewLimiter(namespaced{rdb, namespace}),
		health: gobreaker.NewCircuitBreaker[time.Duration](gobreaker.Settings{
			Name:        "turns of Stripe",
			Timeout:     redisRest,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= redisTrips },
			IsExcluded:  func(err error) bool { return errors.Is(err, errGivenUp) },
		}),
		all:     newBucket("stripe:all", settings.Rate),
		lines:   make(map[call]*line),
		metrics: m,
		budget:  turnBudget,
	}
	for _, name := range calls {
		p.lines[name] = &line{bucket: *newBucket("stripe:"+string(name), cmp.Or(settings.EndpointRate, max(settings.Rate/4, 1))), first: make(chan struct{}, 1)}
	}
	return p
}

func newBucket(key string, perSecond int) *bucket {
	return &bucket{
		key:   key,
		limit: redis_rate.Limit{Rate: perSecond, Burst: max(1, perSecond/burstPart), Period: time.Second},
		alone: rate.NewLimiter(rate.Limit(float64(perSecond)/aloneShare), leastPerKey),
	}
}

// wait returns nil when it is the request's turn, else an error of KindLimited. Of the
// time that ctx has left, half is for waiting.
func (p *pace) wait(ctx context.Context, name call) *callError {
	began := time.Now()
	until := began.Add(time.Hour)
	if deadline, bounded := ctx.Deadline(); bounded {
		until = began.Add(deadline.Sub(began) / 2)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	l := p.lines[name]
	defer l.waiting.Add(-1)
	ahead := time.Duration(float64(l.waiting.Add(1)-1) / float64(l.limit.Rate) * float64(time.Second))
	if began.Add(ahead).After(until) {
		return late(ahead) // those before it alone take longer
	}
	select {
	case l.first <- struct{}{}:
		defer func() { <-l.first }()
	case <-ctx.Done():
		return late(ahead)
	}
	if e := p.turn(ctx, l, until); e != nil {
		return e
	}
	p.metrics.waited(name, began)
	return nil
}

// turn waits for a turn of a kind and of all kinds. A turn of the kind that finds none of
// all is given up: kept until there is one, it would be used in a second of which it is
// not, and many processes that keep one each would exceed the limit of the kind.
//
// The answer to the last turn said when the next one comes: nobody asks before that.
func (p *pace) turn(ctx context.Context, l *line, until time.Time) *callError {
	for {
		after := max(time.Until(l.next), 0)
		if after == 0 {
			var rest time.Duration
			after, rest = p.ask(ctx, &l.bucket)
			l.next = time.Now().Add(rest)
		}
		if after == 0 {
			after, _ = p.ask(ctx, p.all)
		}
		switch {
		case ctx.Err() != nil, later(after).After(until):
			return late(after)
		case after == 0:
			return nil
		}
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return late(after)
		}
	}
}

// errGivenUp means that the caller waits no longer, which says nothing about Redis.
var errGivenUp = errors.New("stripe: nobody waits for this turn")

// ask takes a turn, or returns after which time to ask again. With a turn, rest is the
// time until there can be another one.
func (p *pace) ask(ctx context.Context, b *bucket) (after, rest time.Duration) {
	after, err := p.health.Execute(func() (time.Duration, error) {
		asking, cancel := context.WithTimeout(ctx, p.budget)
		defer cancel()
		result, err := p.gcra.Allow(asking, b.key, b.limit)
		if err != nil && ctx.Err() != nil {
			return 0, errGivenUp
		}
		if err != nil {
			return 0, err
		}
		if result.Allowed > 0 {
			rest = b.rest(result)
			return 0, nil
		}
		return max(result.RetryAfter, time.Millisecond), nil
	})
	if err == nil {
		return after, rest
	}
	p.metrics.alone.Inc()
	now := time.Now()
	reservation := b.alone.ReserveN(now, 1)
	if after = reservation.DelayFrom(now); after > 0 {
		reservation.CancelAt(now)
	}
	return after, 0
}

// rest is the time until a bucket has another turn: it is full again after ResetAfter,
// and gets a turn back in each interval of its rate until then.
func (b *bucket) rest(r *redis_rate.Result) time.Duration {
	interval := b.limit.Period / time.Duration(b.limit.Rate)
	return max(r.ResetAfter-time.Duration(b.limit.Burst-1)*interval, 0)
}

// late is the error of a request that had no turn in time: nothing was done.
func late(after time.Duration) *callError {
	return &callError{public: public{Kind: payprovider.KindLimited, Message: "no turn in time: our own pace", RetryAt: later(max(after, time.Millisecond))}}
}

// namespaced puts the namespace before the keys of scripts. redis_rate uses no other
// command.
type namespaced struct {
	redis.UniversalClient
	namespace string
}

// EvalSha runs a script by its digest.
func (n namespaced) EvalSha(ctx context.Context, digest string, keys []string, args ...any) *redis.Cmd {
	return n.UniversalClient.EvalSha(ctx, digest, n.all(keys), args...)
}

// Eval runs a script.
func (n namespaced) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return n.UniversalClient.Eval(ctx, script, n.all(keys), args...)
}

func (n namespaced) all(keys []string) []string {
	named := make([]string, len(keys))
	for i, key := range keys {
		named[i] = n.namespace + ":" + key
	}
	return named
}
