package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pollEvery is how often a server looks after all its queues: for tasks without a ring, as
// after a pause or a lost one, and for delays that are over.
const pollEvery = time.Second

// pollScript looks after queues, and rings for those that have tasks and no ring.
//
//	KEYS     for each queue: pending, paused, scheduled, retry, bell
//	result   for each queue: 1 if a task can be taken, else 0; when the first delay is over
//	         (Unix time, in s), -1 if none
var pollScript = redis.NewScript(`
local result = {}
for i = 1, #KEYS, 5 do
	local waits, due = 0, -1
	if redis.call('LLEN', KEYS[i]) > 0 and redis.call('EXISTS', KEYS[i + 1]) == 0 then
		waits = 1
		if redis.pcall('LLEN', KEYS[i + 4]) == 0 then -- an error, if the key is of another type
			redis.call('LPUSH', KEYS[i + 4], '')
		end
	end
	for j = i + 2, i + 3 do
		local first = tonumber(redis.call('ZRANGE', KEYS[j], 0, 0, 'WITHSCORES')[2])
		if first and (due < 0 or first < due) then
			due = math.max(first, 0)
		end
	end
	result[#result + 1] = waits
	result[#result + 1] = due
end
return result`)

// poll polls until ctx ends.
func (s *Server) poll(ctx context.Context) {
	ticker := time.NewTicker(s.pollEvery)
	defer ticker.Stop()
	for {
		s.pollOnce(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// pollOnce looks after all queues. When Redis does not answer, what it would have said is
// unknown, and asynq's own scripts pass through.
func (s *Server) pollOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	var keys []string
	for _, one := range s.kinds {
		for _, part := range []string{"pending", "paused", "scheduled", "retry"} {
			keys = append(keys, asynqKey(s.namespace, one.kind, part))
		}
		keys = append(keys, bellKey(s.namespace, one.kind))
	}
	began := time.Now()
	answer, err := pollScript.Run(ctx, s.rdb, keys).Int64Slice()
	if err == nil && len(answer) != 2*len(s.kinds) {
		err = fmt.Errorf("queue: a poll of %d queues has %d answers", len(s.kinds), len(answer))
	}
	if err != nil {
		return
	}
	for i, one := range s.kinds {
		if answer[2*i] > 0 {
			one.waiter.pending()
		}
		one.waiter.delayed.found(began, answer[2*i+1])
	}
}

// delayedTasks is what the last poll has found of the tasks of a kind that are delayed.
type delayedTasks struct {
	mu     sync.Mutex
	polled time.Time // when the poll began
	due    int64     // when the first delay is over, in s; -1: there is none
	last   time.Time // when this process has last put a task in
}

func (d *delayedTasks) found(began time.Time, due int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.polled, d.due = began, due
}

// put notes that this process has delayed a task.
func (d *delayedTasks) put() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = time.Now()
}

// none tells whether no delay is over, as far as a poll knows that is fresh.
func (d *delayedTasks) none(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Sub(d.polled) < 2*pollEvery && d.polled.After(d.last) && (d.due < 0 || d.due > now.Unix())
}
