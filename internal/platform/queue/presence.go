package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// The roles of processes that announce themselves.
const (
	RoleWorker    = "worker"
	RoleScheduler = "scheduler" // only the one that leads
)

const (
	// gone is how long a process counts as silent that has left without a farewell. After
	// it the process counts as gone.
	gone = 10 * time.Minute
	// mostPresent bounds the set: beyond it those that were silent first are forgotten.
	mostPresent = 1000
)

// Presence says in Redis that a process is alive.
type Presence struct {
	rdb       redis.UniversalClient
	namespace string
	member    string
	every     time.Duration
	ttl       time.Duration
}

// NewID returns an id for a process that tells people which one it is: its host and pid, and
// a random part.
func NewID() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// The times of heartbeats.
const (
	heartbeatEvery = 2 * time.Second // how often a process reports that it is alive
	HeartbeatTTL   = 5 * time.Second // a process that is silent for this long counts as dead, and a worker's tasks are enqueued again
)

// NewPresence returns the Presence of a process in a role.
func NewPresence(rdb redis.UniversalClient, namespace, role, id string, settings config.Worker) *Presence {
	return &Presence{rdb: rdb, namespace: namespace, member: role + ":" + id, every: cmp.Or(settings.HeartbeatInterval, heartbeatEvery), ttl: cmp.Or(settings.HeartbeatTTL, HeartbeatTTL)}
}

// Run announces the process until ctx ends, then says farewell: it was never silent.
func (p *Presence) Run(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	for {
		if err := p.announce(ctx); err != nil && ctx.Err() == nil {
			logger.Warn("heartbeat not delivered", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			farewell, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.every)
			defer cancel()
			_ = p.rdb.ZRem(farewell, presenceKey(p.namespace), p.member).Err()
			return
		}
	}
}

// announceScript notes until when a process counts as alive, in milliseconds of Redis' clock.
//
//	KEYS[1]  the set of processes; a key of another type is deleted
//	ARGV     the process, its ttl, gone (both in milliseconds), mostPresent
//	result   the processes that are silent
var announceScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
	redis.call('DEL', KEYS[1])
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[3])
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)`)

func (p *Presence) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.every)
	defer cancel()
	answer := announceScript.Run(ctx, p.rdb, []string{presenceKey(p.namespace)}, p.member, p.ttl.Milliseconds(), gone.Milliseconds(), mostPresent)
	err := answer.Err()
	silent, _ := answer.StringSlice() // none, with an error
	for _, member := range silent {   // of a process of another container that is only frozen, the next heartbeat adds it again
		if hasEnded(member) {
			err = errors.Join(err, p.rdb.ZRem(ctx, presenceKey(p.namespace), member).Err())
		}
	}
	return err
}

// hasEnded tells whether a silent process was on this host and has ended: nothing has its pid, or
// this process does.
func hasEnded(member string) bool {
	_, id, _ := strings.Cut(member, ":")
	parts := strings.Split(id, "/")
	host, err := os.Hostname()
	if err != nil || len(parts) != 3 || parts[0] != host {
		return false
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid <= 0 || pid == os.Getpid() {
		return err == nil && pid > 0
	}
	process, err := os.FindProcess(pid)
	return err == nil && errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// Present is what is known of the processes in one role.
type Present struct {
	Alive  []string // their ids
	Silent []string // they have left without a farewell, or stand still
}

// presentScript reads the set of processes.
//
//	KEYS[1]  the set of processes
//	ARGV     gone, in milliseconds
//	result   the alive ones, then the silent ones
var presentScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
	return {{}, {}}
end
return {redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf'), redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now - ARGV[1], now)}`)

// ReadPresent returns the processes of a namespace, by role. With an error nothing is known
// of any.
func ReadPresent(ctx context.Context, rdb redis.UniversalClient, namespace string) (map[string]Present, error) {
	answer, err := presentScript.Run(ctx, rdb, []string{presenceKey(namespace)}, gone.Milliseconds()).Slice()
	if err != nil || len(answer) != 2 {
		return nil, fmt.Errorf("queue.ReadPresent: %d lists: %w", len(answer), err)
	}
	roles := make(map[string]Present)
	for i, list := range answer {
		members, _ := list.([]any)
		for _, one := range members {
			text, _ := one.(string)
			role, id, _ := strings.Cut(text, ":")
			present := roles[role]
			if i == 0 {
				present.Alive = append(present.Alive, id)
			} else {
				present.Silent = append(present.Silent, id)
			}
			roles[role] = present
		}
	}
	return roles, nil
}

// unleasedScript counts the keys of the database, and active tasks without a lease.
//
//	KEYS[2n-1]  the tasks of a queue that are active
//	KEYS[2n]    their leases, by the second when they end
//	result      the number of all keys, then one of tasks for each queue
var unleasedScript = redis.NewScript(`
local now = redis.call('TIME')[1]
local counts = {redis.call('DBSIZE')}
for i = 1, #KEYS, 2 do
  counts[#counts + 1] = math.max(0, redis.call('LLEN', KEYS[i]) - redis.call('ZCOUNT', KEYS[i + 1], now, '+inf'))
end
return counts`)

// CountUnleased returns for each kind how many tasks are active without a lease, and how many keys
// the database has.
func CountUnleased(ctx context.Context, rdb redis.UniversalClient, namespace string, kinds []string) (unleased []int64, all int64, err error) {
	keys := make([]string, 0, 2*len(kinds))
	for _, kind := range kinds {
		keys = append(keys, asynqKey(namespace, kind, "active"), asynqKey(namespace, kind, "lease"))
	}
	counts, err := unleasedScript.Run(ctx, rdb, keys).Int64Slice()
	if err != nil || len(counts) != 1+len(kinds) {
		return nil, 0, fmt.Errorf("queue.CountUnleased: %d counts: %w", len(counts), err)
	}
	return counts[1:], counts[0], nil
}

func presenceKey(namespace string) string { return namespace + ":processes" }

// Heartbeat is the [Presence] of a worker, and says which tasks the worker has. Each of its
// writes may fail: the worker then counts as dead, its tasks are enqueued again, and
// Postgres lets no effect happen twice.
type Heartbeat struct {
	*Presence
	worker string
}

// NewHeartbeat returns the Heartbeat of a worker.
func NewHeartbeat(rdb redis.UniversalClient, namespace, worker string, settings config.Worker) *Heartbeat {
	return &Heartbeat{Presence: NewPresence(rdb, namespace, RoleWorker, worker, settings), worker: worker}
}

// inProgress begins the value of a task's idempotency key; the worker that has the task follows.
const inProgress = "IN_PROGRESS "

// Claim sets the idempotency key of a task, so that no other worker does the task meanwhile.
// It is false while another worker that is alive has the task. A key whose worker is not alive is
// taken over at once. With an error nothing is known: Postgres lets no effect happen twice.
//
// The key ends by itself when the task goes back to the queue, after taskTimeout: so none is left
// for ever whose removal has failed.
func (h *Heartbeat) Claim(ctx context.Context, task uuid.UUID) (bool, error) {
	key, mine := activeTaskKey(h.namespace, task), inProgress+h.worker
	value, err := h.rdb.SetArgs(ctx, key, mine, redis.SetArgs{Mode: "NX", Get: true, TTL: taskTimeout}).Result()
	switch {
	case errors.Is(err, redis.Nil): // nobody had it
		return true, nil
	case err != nil && !redis.HasErrorPrefix(err, wrongType):
		return true, err
	case value == mine:
		return true, nil
	}
	present, err := ReadPresent(ctx, h.rdb, h.namespace)
	if err != nil {
		return true, err
	}
	if slices.Contains(present[RoleWorker].Alive, holderOf(value)) {
		return false, nil
	}
	return true, h.rdb.Set(ctx, key, mine, taskTimeout).Err()
}

// releaseScript deletes a key that has a value, so that nobody deletes what another worker has taken over.
var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

// Release deletes the idempotency key of a task that this worker no longer works on.
func (h *Heartbeat) Release(ctx context.Context, task uuid.UUID) error {
	return releaseScript.Run(ctx, h.rdb, []string{activeTaskKey(h.namespace, task)}, inProgress+h.worker).Err()
}

// holderOf returns the worker that a key of a task names; empty: none.
func holderOf(value string) string {
	worker, ok := strings.CutPrefix(value, inProgress)
	if !ok {
		return ""
	}
	return worker
}

func activeTaskKey(namespace string, task uuid.UUID) string {
	return namespace + ":active-task:" + task.String()
}
