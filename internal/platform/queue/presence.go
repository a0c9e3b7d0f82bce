package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
)

// The roles of processes that send heartbeats.
const (
	RoleAPI       = "api"
	RoleWorker    = "worker"
	RoleScheduler = "scheduler" // only the one that leads
)

const (
	// staleFor is how long a process without heartbeats is listed as stale. Then it is removed.
	staleFor = 10 * time.Minute
	// crashesFor is how long crashes count after the last one: whoever restarts a process backs off for some minutes.
	crashesFor = time.Hour
	// maxProcesses bounds the set; beyond it the processes that have been stale longest are removed.
	maxProcesses = 1000
	// steadyAfter is how many heartbeats a process has sent when its end is a shutdown, and crashes before it are over: a minute.
	steadyAfter = 30
)

// Heartbeat sends the heartbeats of a process to Redis, and records which tasks a worker holds. Any of its
// writes may fail: the worker then counts as dead, its tasks are enqueued again, and Postgres prevents that
// an effect happens twice.
type Heartbeat struct {
	Describe func() Description // set before Run: what the process says of itself; nil: nothing

	rdb       redis.UniversalClient
	namespace string
	role, id  string
	every     time.Duration
	ttl       time.Duration
	held      sync.Map // ids of the tasks whose idempotency keys each heartbeat renews
	since     time.Time
	beats     int
}

// Description is what a process says of itself, because no other process can know it.
type Description struct {
	Version string   `json:"version,omitempty"`
	Faults  []string `json:"faults,omitempty"` // failing checks and causes that are its own
}

// NewID returns an id for a process that people can recognize: host, pid and a random part.
func NewID() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// The times of heartbeats.
const (
	heartbeatEvery = 2 * time.Second // between two heartbeats
	HeartbeatTTL   = 5 * time.Second // without a heartbeat for this long a process counts as dead, and a worker's tasks are enqueued again
)

// NewHeartbeat returns the Heartbeat of a process in a role.
func NewHeartbeat(rdb redis.UniversalClient, namespace, role, id string, settings config.Worker) *Heartbeat {
	return &Heartbeat{rdb: rdb, namespace: namespace, role: role, id: id,
		every: cmp.Or(settings.HeartbeatInterval, heartbeatEvery), ttl: cmp.Or(settings.HeartbeatTTL, HeartbeatTTL)}
}

func (h *Heartbeat) member() string { return h.role + ":" + h.id }

// Run sends heartbeats until ctx ends, then deregisters the process, so that it never counts as stale.
func (h *Heartbeat) Run(ctx context.Context, logger *slog.Logger) {
	h.since, h.beats = time.Now().UTC(), 0
	ticker := time.NewTicker(h.every)
	defer ticker.Stop()
	for {
		if err := h.beat(ctx); err != nil && ctx.Err() == nil {
			logger.Warn("heartbeat not delivered", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.every)
			defer cancel()
			_ = h.remove(bounded, h.member(), h.beats < steadyAfter)
			return
		}
	}
}

// remove removes a process that has ended from the set. A crash of a worker is counted by the one who has removed it.
func (h *Heartbeat) remove(ctx context.Context, member string, crashed bool) error {
	var removed *redis.IntCmd
	_, err := h.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		removed = pipe.ZRem(ctx, processesKey(h.namespace), member)
		pipe.Del(ctx, processKey(h.namespace, member))
		return nil
	})
	if crashed = crashed && removed.Val() > 0 && strings.HasPrefix(member, RoleWorker+":"); !crashed {
		return err
	}
	_, err = h.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, crashesKey(h.namespace))
		pipe.PExpire(ctx, crashesKey(h.namespace), crashesFor)
		return nil
	})
	return err
}

// beatScript sets until when a process counts as alive, in milliseconds of Redis' clock.
//
//	KEYS[1]  the set of processes; a key of another type is deleted
//	ARGV     the process, its TTL, staleFor (both in milliseconds), maxProcesses
//	result   the stale processes
var beatScript = redis.NewScript(`
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

func (h *Heartbeat) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.every)
	defer cancel()
	said := Process{Since: h.since, Beats: h.beats + 1}
	if h.Describe != nil {
		said.Description = h.Describe()
	}
	var answer *redis.Cmd
	_, err := h.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for task := range h.held.Range {
			said.InHand++
			key := activeTaskKey(h.namespace, task.(uuid.UUID)) //nolint:forcetypeassert // see Acquire
			pipe.SetNX(ctx, key, inProgress+h.id, h.ttl)        // it may have expired while Redis was away
			pipe.PExpire(ctx, key, h.ttl)
		}
		if said.Beats == steadyAfter && h.role == RoleWorker {
			pipe.Del(ctx, crashesKey(h.namespace))
		}
		text, failed := json.Marshal(said)
		pipe.Set(ctx, processKey(h.namespace, h.member()), text, h.ttl+staleFor) // first: what has not described itself counts as alive
		answer = beatScript.Eval(ctx, pipe, []string{processesKey(h.namespace)}, h.member(), h.ttl.Milliseconds(), staleFor.Milliseconds(), maxProcesses)
		return failed
	})
	if err == nil {
		h.beats++
	}
	stale, _ := answer.StringSlice() // none, with an error
	for _, member := range stale {   // a process of another container may only be frozen: its next heartbeat adds it again
		if hasExited(member) {
			err = errors.Join(err, h.remove(ctx, member, true))
		}
	}
	return err
}

// hasExited reports whether a stale process ran on this host and has exited: its pid is free or that of this process.
func hasExited(member string) bool {
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

// Processes lists the processes in one role by id.
type Processes struct {
	Alive []string // they have beaten in time, some of them once
	Stale []string // they exited without deregistering, or are frozen
}

// processesScript reads the set by the clock of its own node, which has written it.
//
//	KEYS[1]  the set of processes
//	ARGV[1]  staleFor in milliseconds
//	result   the processes that are alive, and the stale ones
var processesScript = redis.NewScript(`
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
	return {{}, {}}
end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
return {redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf'), redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now - ARGV[1], now)}`)

// ReadProcesses returns the processes of a namespace, by role. After an error nothing is known about any.
func ReadProcesses(ctx context.Context, rdb redis.UniversalClient, namespace string) (map[string]Processes, error) {
	answer, err := processesScript.Run(ctx, rdb, []string{processesKey(namespace)}, staleFor.Milliseconds()).Slice()
	if err != nil {
		return nil, fmt.Errorf("queue.ReadProcesses: %w", err)
	}
	roles := make(map[string]Processes)
	for i, members := range answer {
		members, _ := members.([]any)
		for _, member := range members {
			role, id, _ := strings.Cut(fmt.Sprint(member), ":")
			processes := roles[role]
			if i == 0 {
				processes.Alive = append(processes.Alive, id)
			} else {
				processes.Stale = append(processes.Stale, id)
			}
			roles[role] = processes
		}
	}
	return roles, nil
}

// The states of a Process.
const (
	Starting = "starting" // it has beaten once: it may be one that dies again and again
	Alive    = "alive"
	Silent   = "silent" // see Processes.Stale
)

// Process is a process that sends heartbeats, as it has described itself with the last one.
type Process struct {
	Role  string    `json:"-"`
	ID    string    `json:"-"`
	State string    `json:"-"`
	Since time.Time `json:"since"` // its first heartbeat
	Beats int       `json:"beats"`
	Description

	InHand int `json:"in_hand"` // tasks
}

// Fleet is what is known of all processes that send heartbeats.
type Fleet struct {
	Processes []Process // by role and id
	Crashes   int       // workers that ended without a shutdown, or within a minute of their start; 0 when one that started later has run for a minute, and an hour after the last
}

// Named returns the ids of the processes in a role that are in a state.
func (f Fleet) Named(role, state string) (ids []string) {
	for _, p := range f.Processes {
		if p.Role == role && p.State == state {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// ReadFleet returns what is known of the processes of a namespace. After an error nothing is known about any.
func ReadFleet(ctx context.Context, rdb redis.UniversalClient, namespace string) (f Fleet, err error) {
	roles, err := ReadProcesses(ctx, rdb, namespace)
	if err != nil {
		return f, err
	}
	for role, list := range roles {
		for i, id := range slices.Concat(list.Alive, list.Stale) {
			state := map[bool]string{true: Alive, false: Silent}[i < len(list.Alive)]
			f.Processes = append(f.Processes, Process{Role: role, ID: id, State: state})
		}
	}
	slices.SortFunc(f.Processes, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.ID, b.ID)) })
	said := make([]*redis.StringCmd, len(f.Processes)+1)
	_, _ = rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, p := range f.Processes {
			said[i] = pipe.Get(ctx, processKey(namespace, p.Role+":"+p.ID))
		}
		said[len(f.Processes)] = pipe.Get(ctx, crashesKey(namespace))
		return nil
	})
	for i, one := range said { // the first of all errors may be the absence of one
		switch text, err := one.Bytes(); {
		case errors.Is(err, redis.Nil): // it is not known what it says
		case err != nil:
			return Fleet{}, fmt.Errorf("queue.ReadFleet: %w", err)
		case i == len(f.Processes):
			f.Crashes, _ = one.Int()
		default:
			p := &f.Processes[i]
			if _ = json.Unmarshal(text, p); p.State == Alive && p.Beats < 2 {
				p.State = Starting
			}
		}
	}
	return f, nil
}

// CountUnleased counts the active tasks without a lease of each kind. The leases end by the clocks of the workers.
func CountUnleased[K ~string](ctx context.Context, rdb redis.UniversalClient, namespace string, kinds []K) (unleased []int64, err error) {
	active, leased := make([]*redis.IntCmd, len(kinds)), make([]*redis.IntCmd, len(kinds))
	_, err = rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, kind := range kinds {
			active[i] = pipe.LLen(ctx, asynqKey(namespace, string(kind), "active"))
			leased[i] = pipe.ZCount(ctx, asynqKey(namespace, string(kind), "lease"), strconv.FormatInt(time.Now().Unix(), 10), "+inf")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("queue.CountUnleased: %w", err)
	}
	for i := range kinds {
		unleased = append(unleased, max(active[i].Val()-leased[i].Val(), 0))
	}
	return unleased, nil
}

func processesKey(namespace string) string { return namespace + ":processes" }

func crashesKey(namespace string) string { return namespace + ":crashes" }

func processKey(namespace, member string) string { return namespace + ":process:" + member }

// inProgress is the prefix of a task's idempotency key's value; the id of its worker follows.
const inProgress = "IN_PROGRESS "

// released is the value of the idempotency key of a task that goes back to the queue, until the next worker takes it
// over. It keeps the task from counting as orphaned meanwhile.
const released = "RELEASED"

// Acquire sets the idempotency key of a task, so that nobody else runs the task meanwhile. It returns
// false until Release in this worker, too, also without Redis: two messages may name one job, and two
// attempts at it at once would both count. It returns false while another live worker holds the key, and takes over
// the key of a dead one, or one whose release was lost, at once.
// After an error the holder is unknown: Postgres prevents that an effect happens twice.
//
// Heartbeats renew the key until Release. So it expires if its release fails, or is lost in a failover of Redis, and
// the task counts as orphaned.
func (h *Heartbeat) Acquire(ctx context.Context, task uuid.UUID) (mine bool, err error) {
	if _, held := h.held.LoadOrStore(task, nil); held {
		return false, nil
	}
	if mine, err = h.acquire(ctx, task); !mine {
		h.held.Delete(task)
	}
	return mine, err
}

func (h *Heartbeat) acquire(ctx context.Context, task uuid.UUID) (bool, error) {
	key, mine := activeTaskKey(h.namespace, task), inProgress+h.id
	value, err := h.rdb.SetArgs(ctx, key, mine, redis.SetArgs{Mode: "NX", Get: true, TTL: h.ttl}).Result()
	switch {
	case errors.Is(err, redis.Nil): // it was free
		return true, nil
	case err != nil && !redis.HasErrorPrefix(err, wrongType):
		return true, err
	case value == mine:
		return true, h.rdb.PExpire(ctx, key, h.ttl).Err()
	}
	processes, err := ReadProcesses(ctx, h.rdb, h.namespace)
	if err != nil {
		return true, err
	}
	if slices.Contains(processes[RoleWorker].Alive, workerOf(value)) {
		return false, nil
	}
	return true, h.rdb.Set(ctx, key, mine, h.ttl).Err()
}

// releaseScript changes a key only if it has the given value: another worker may have taken it over.
//
//	KEYS[1]  the key
//	ARGV     its value, its next value ("": none), the TTL of that in milliseconds
var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return 0
elseif ARGV[2] == '' then
	return redis.call('DEL', KEYS[1])
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`)

// Release frees a task that this worker no longer runs: another worker may acquire it. goesBack says that it will
// be delivered again.
func (h *Heartbeat) Release(ctx context.Context, task uuid.UUID, goesBack bool) error {
	h.held.Delete(task)
	next := ""
	if goesBack {
		next = released
	}
	return releaseScript.Run(ctx, h.rdb, []string{activeTaskKey(h.namespace, task)}, inProgress+h.id, next, h.ttl.Milliseconds()).Err()
}

// workerOf returns the worker in the value of an idempotency key, or "".
func workerOf(value string) string {
	worker, held := strings.CutPrefix(value, inProgress)
	if !held {
		return ""
	}
	return worker
}

func activeTaskKey(namespace string, task uuid.UUID) string {
	return namespace + ":active-task:" + task.String()
}
