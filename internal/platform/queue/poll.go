package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pollEvery is how often the servers with the same queues poll them, whichever is first, for tasks without a wakeup and
// for delays that are over.
const pollEvery = time.Second

// unreadableAfter is how long after the expiry of its lease a task is deleted as unreadable. asynq's
// recoverer runs once a minute and takes a readable task 30 seconds after the expiry.
const unreadableAfter = 3 * time.Minute

// pollScript enqueues delayed tasks whose delay is over, as asynq's forwarder does with two scripts for each
// queue, and pushes wakeups for these, or one if there are tasks without a wakeup. It deletes what would block
// asynq: keys of another type, pending and delayed tasks whose record is no hash, and tasks that asynq's
// recoverer could not read. Their work is in Postgres, and a sweep issues it again. It also adds the queues to
// asynq's set, as asynq does once in the life of a client: FLUSHALL empties the set.
//
// It does nothing if a worker with the same queues has polled a moment ago.
//
//	KEYS     what is set while a poll is recent; for each queue: pending, paused, scheduled, retry, wakeup, active, lease; asynq's set of queues, if it is
//	         to be filled. In a Cluster each queue and the set have a call of their own
//	ARGV     for how long a poll is recent, in ms; how long after its lease a task is unreadable, in s; the most wakeups; the time in s and in ns, by the
//	         clock of a worker, which sets leases and delays; for each queue: the prefix of its task keys
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
if redis.call('PTTL', KEYS[1]) > 0 then
	return
end
redis.call('SET', KEYS[1], '', 'PX', ARGV[1])
local now = tonumber(ARGV[4])
if #KEYS % 7 == 2 then
	for i = 6, #ARGV do
		read('SADD', KEYS[#KEYS], string.match(ARGV[i], '{(.*)}'))
	end
end
for i = 2, #KEYS - 6, 7 do
	local task = ARGV[(i + 40) / 7]
	local function lost(id) return redis.call('TYPE', task .. id).ok ~= 'hash' end
	read('LLEN', KEYS[i + 5])
	for _, id in ipairs(read('ZRANGEBYSCORE', KEYS[i + 6], '-inf', now - ARGV[2], 'LIMIT', 0, 100)) do
		redis.call('LREM', KEYS[i + 5], 0, id)
		redis.call('ZREM', KEYS[i + 6], id)
		redis.call('DEL', task .. id)
	end
	for _, id in ipairs(read('LRANGE', KEYS[i], -100, -1)) do
		if lost(id) then
			redis.call('LREM', KEYS[i], -1, id)
		end
	end
	local wakeups, wanted = read('LLEN', KEYS[i + 4]), 1
	for j = i + 2, i + 3 do
		for _, id in ipairs(read('ZRANGEBYSCORE', KEYS[j], '-inf', now, 'LIMIT', 0, 1000)) do
			redis.call('ZREM', KEYS[j], id)
			if not lost(id) then
				redis.call('LPUSH', KEYS[i], id)
				redis.call('HSET', task .. id, 'state', 'pending', 'pending_since', ARGV[5])
				wanted = math.min(wanted + 1, tonumber(ARGV[3]))
			end
		end
	end
	if redis.call('LLEN', KEYS[i]) > 0 and redis.call('EXISTS', KEYS[i + 1]) == 0 then
		for _ = wakeups + 1, wanted do
			redis.call('LPUSH', KEYS[i + 4], '')
		end
	end
end`)

// poll polls until ctx ends.
func (s *Server) poll(ctx context.Context) {
	ticker := time.NewTicker(s.pollEvery)
	defer ticker.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, pollEvery)
		s.pollOnce(bounded)
		cancel()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// pollOnce polls all queues. While Redis does not answer, no task can be taken either.
func (s *Server) pollOnce(ctx context.Context) {
	now := time.Now()
	run := func(keys []string, tasks ...any) {
		args := append([]any{max(1, s.pollEvery.Milliseconds()*9/10), int(unreadableAfter.Seconds()), maxWakeups, now.Unix(), now.UnixNano()}, tasks...)
		err := pollScript.Run(ctx, s.rdb, keys, args...).Err()
		if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(ctx.Err(), context.Canceled) { // the script has no result
			s.logger.Warn("queues were not polled: tasks whose delay is over wait", "error", err)
		}
	}
	_, isCluster := s.rdb.(*redis.ClusterClient)
	polled := s.namespace + ":polled" // by workers with the same queues: not all accept cards
	var all []string
	var tasks []any
	var polls sync.WaitGroup // a node that does not answer delays only its queues
	for _, one := range s.kinds {
		key := func(part string) string { return asynqKey(s.namespace, one.kind, part) }
		keys := []string{key("pending"), key("paused"), key("scheduled"), key("retry"), wakeupKey(s.namespace, one.kind), key("active"), key("lease")}
		if tasks = append(tasks, key("t:")); isCluster {
			polls.Go(func() {
				run(append([]string{s.namespace + ":polled:{" + Name(s.namespace, one.kind) + "}"}, keys...), key("t:"))
			})
		} else {
			all = append(all, keys...)
		}
		polled += ":" + one.kind
	}
	run(slices.Concat([]string{polled + ":{asynq:queues}"}, all, []string{"asynq:queues"}), tasks...)
	polls.Wait()
}
