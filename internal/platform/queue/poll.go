package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pollEvery is how often a server polls its queues for tasks without a wakeup and for delays that are over.
const pollEvery = time.Second

// asynqQueues is the key of asynq's set of queues.
const asynqQueues = "asynq:queues"

// unreadableAfter is how long after the expiry of its lease a task is deleted as unreadable. asynq's
// recoverer runs once a minute and takes a readable task 30 seconds after the expiry.
const unreadableAfter = 3 * time.Minute

// pollScript checks queues and pushes a wakeup for each that has pending tasks and no wakeup. It deletes
// what would block asynq: keys of another type, delayed tasks whose record is no hash, and tasks that
// asynq's recoverer could not read. Their work is in Postgres, and a sweep issues it again.
//
//	KEYS     asynq's set of queues; for each queue: pending, paused, scheduled, retry, wakeup, active, lease
//	ARGV     how long after its lease a task is unreadable, in s; for each queue: the prefix of its task keys
//	result   for each queue: 1 if a task can be taken, else 0; when the first delay is over
//	         (Unix time, in s), or -1
var pollScript = redis.NewScript(`
local function read(command, key, ...) -- a key of another type is deleted first
	local answer = redis.pcall(command, key, ...)
	if type(answer) ~= 'table' or not answer.err then
		return answer
	end
	if string.find(answer.err, 'WRONGTYPE', 1, true) then
		redis.call('DEL', key)
	end
	return redis.call(command, key, ...)
end
local result, now = {}, tonumber(redis.call('TIME')[1])
read('SCARD', KEYS[1])
for i = 2, #KEYS, 7 do
	local ready, due, task = 0, -1, ARGV[(i + 12) / 7]
	read('LLEN', KEYS[i + 5])
	for _, id in ipairs(read('ZRANGEBYSCORE', KEYS[i + 6], '-inf', now - ARGV[1], 'LIMIT', 0, 100)) do
		redis.call('LREM', KEYS[i + 5], 0, id)
		redis.call('ZREM', KEYS[i + 6], id)
		redis.call('DEL', task .. id)
	end
	local wakeups = read('LLEN', KEYS[i + 4])
	if read('LLEN', KEYS[i]) > 0 and redis.call('EXISTS', KEYS[i + 1]) == 0 then
		ready = 1
		if wakeups == 0 then
			redis.call('LPUSH', KEYS[i + 4], '')
		end
	end
	for j = i + 2, i + 3 do
		local function first() return tonumber(read('ZRANGE', KEYS[j], 0, 0, 'WITHSCORES')[2]) end
		local at = first()
		if at and at <= now then
			for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[j], '-inf', now, 'LIMIT', 0, 100)) do
				if redis.call('TYPE', task .. id).ok ~= 'hash' then
					redis.call('ZREM', KEYS[j], id)
				end
			end
			at = first()
		end
		if at and (due < 0 or at < due) then
			due = math.max(at, 0)
		end
	end
	result[#result + 1] = ready
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

// pollOnce polls all queues. Without an answer of Redis the state is unknown, and asynq runs its own scripts.
func (s *Server) pollOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollEvery)
	defer cancel()
	keys, args := []string{asynqQueues}, []any{int(unreadableAfter.Seconds())}
	for _, one := range s.kinds {
		key := func(part string) string { return asynqKey(s.namespace, one.kind, part) }
		keys = append(keys, key("pending"), key("paused"), key("scheduled"), key("retry"), wakeupKey(s.namespace, one.kind), key("active"), key("lease"))
		args = append(args, key("t:"))
	}
	began := time.Now()
	answer, err := pollScript.Run(ctx, s.rdb, keys, args...).Int64Slice()
	if err == nil && len(answer) != 2*len(s.kinds) {
		err = fmt.Errorf("queue: a poll of %d queues returned %d values", len(s.kinds), len(answer))
	}
	if err != nil {
		return
	}
	for i, one := range s.kinds {
		if answer[2*i] > 0 {
			one.waiter.notePending()
		}
		one.waiter.delayed.update(began, answer[2*i+1])
	}
}

// delayedTasks is what the last poll found about the delayed tasks of a kind.
type delayedTasks struct {
	mu        sync.Mutex
	polled    time.Time // when the poll began
	due       int64     // when the first delay is over, in s; -1: no task is delayed
	delayedAt time.Time // when this process last delayed a task
}

func (d *delayedTasks) update(began time.Time, due int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.polled, d.due = began, due
}

// noteDelayed records that this process delayed a task: the last poll is out of date.
func (d *delayedTasks) noteDelayed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delayedAt = time.Now()
}

// noneDue reports whether a recent poll shows that no delay is over.
func (d *delayedTasks) noneDue(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Sub(d.polled) < 2*pollEvery && d.polled.After(d.delayedAt) && (d.due < 0 || d.due > now.Unix())
}
