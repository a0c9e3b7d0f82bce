package worker

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	platformsweep "triprize/internal/platform/sweep"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// scene is work of each kind that waits in Redis, or that a worker took which is dead.
type scene struct {
	t        *testing.T
	w        *Worker
	settings config.Settings
	jobs     []uuid.UUID
	campaign uuid.UUID // of the first purchases
}

// newScene makes the same keys every time, but for ids and the namespace.
func newScene(t *testing.T, url string) *scene {
	t.Helper()
	settings := workerSettings(t)
	settings.Redis.URL = url
	settings.Sweeps.LostJobsBackoff, settings.Sweeps.LostJobsMaxBackoff = time.Millisecond, time.Millisecond
	settings.Worker.MaxDeliveries = 1000
	w := newWorkerOn(t, settings, prometheus.NewRegistry())
	s := &scene{t: t, w: w, settings: settings, campaign: fixture.Campaign(t, w.db, fixture.Draft(8))}
	cancelled, drawn := fixture.Campaign(t, w.db, fixture.Draft(8)), fixture.Campaign(t, w.db, fixture.Draft(3))
	bought := fixture.Buy(t, w.db, s.campaign, "canceller", 0, 1)
	ref := fixture.SellOut(t, w.db, drawn)
	s.jobs = append(s.jobs, ref.ID)
	servers.Exec(t, w.db, `UPDATE outbox_messages SET seen_at = clock_timestamp() - interval '1 hour'`) // the sweep enqueues the draw
	servers.NoError(t, s.sweep())

	s.take(order(t, w, s.campaign, "a", "b"), order(t, w, s.campaign, "c"), order(t, w, s.campaign, "d", "e"))
	s.enqueue(order(t, w, s.campaign, "f", "g"), order(t, w, s.campaign, "h"))
	s.accept(fixture.CancelRequest(t, s.campaign, bought))
	s.accept(job.Request{ID: uuidv7.New(), Client: "shop", Key: uuid.NewString(), Kind: job.KindCampaignCancellation, CampaignID: cancelled, Payload: []byte(`{}`), Retention: time.Hour})
	return s
}

func (s *scene) accept(r job.Request) {
	s.t.Helper()
	_, messages, err := job.Accept(s.t.Context(), s.w.db, []job.Request{r})
	servers.NoError(s.t, err)
	s.enqueue(messages...)
}

func (s *scene) enqueue(messages ...job.Message) {
	s.t.Helper()
	for _, m := range messages {
		for _, ref := range m.Jobs {
			if !slices.Contains(s.jobs, ref.ID) {
				s.jobs = append(s.jobs, ref.ID)
			}
		}
		servers.NoError(s.t, queue.NewClient(s.w.rdb, s.w.namespace).Enqueue(s.t.Context(), m.Task()))
	}
}

// take lets a worker take messages that puts the first one off, keeps the others, and has no slot for more: it is dead.
func (s *scene) take(messages ...job.Message) {
	s.t.Helper()
	beat := queue.NewHeartbeat(s.w.rdb, s.settings.Redis.Namespace, queue.RoleWorker, "dead", config.Worker{HeartbeatInterval: time.Hour, HeartbeatTTL: time.Millisecond})
	ctx, die := context.WithCancel(context.Background())
	s.t.Cleanup(die)
	go beat.Run(ctx, servers.Logger(s.t))
	took, end := make(chan struct{}, len(messages)), make(chan struct{})
	server := queue.NewServer(s.w.rdb, s.settings.Redis.Namespace, config.Worker{ShutdownTimeout: servers.Patience}, servers.Logger(s.t),
		queue.Consumer{Kind: string(job.KindPurchase), Concurrency: len(messages) - 1, Handle: func(ctx context.Context, task queue.Task, _ bool) error {
			if task.ID == messages[0].ID {
				took <- struct{}{}
				return queue.SnoozeFor(context.Canceled, time.Hour) // until play
			}
			if mine, err := beat.Acquire(ctx, task.ID); err != nil || !mine {
				s.t.Error(mine, err)
			}
			took <- struct{}{}
			<-end
			return nil
		}})
	servers.NoError(s.t, server.Start(context.Background()))
	s.enqueue(messages...)
	for range messages {
		<-took
	}
	s.t.Cleanup(func() { close(end); server.Shutdown() })
	for _, m := range messages[1:] { // that of the heartbeat lives for a millisecond, so it would be there or not
		servers.NoError(s.t, s.w.rdb.Set(s.t.Context(), s.settings.Redis.Namespace+":active-task:"+m.ID.String(), "IN_PROGRESS dead", 0).Err())
	}
	servers.Eventually(s.t, "one is put off, and the worker is known", func() bool {
		present, err := queue.ReadProcesses(s.t.Context(), s.w.rdb, s.settings.Redis.Namespace)
		tasks, _ := s.putOff()
		return err == nil && len(present[queue.RoleWorker].Stale) == 1 && len(tasks) == 1
	})
}

// putOff returns the tasks that are put off, and their key.
func (s *scene) putOff() (tasks []string, key string) {
	key = "asynq:{" + queue.Name(s.settings.Redis.Namespace, string(job.KindPurchase)) + "}:retry"
	return s.w.rdb.ZRange(s.t.Context(), key, 0, -1).Val(), key
}

// sweep runs the sweep lost-jobs once.
func (s *scene) sweep() error {
	s.t.Helper()
	sweeper := upkeep.New(s.settings, s.w.db, s.w.rdb, servers.Logger(s.t), upkeep.Options{})
	lost := slices.IndexFunc(sweeper.Sweeps, func(s platformsweep.Sweep) bool { return s.Name == "lost-jobs" })
	_, err := sweeper.Run(s.t.Context(), sweeper.Sweeps[lost])
	return err
}

const allQueues = "asynq:queues"

// keys returns the keys in Redis that workers and the queue have, by a name that is the same in every scene.
func (s *scene) keys() map[string]string {
	s.t.Helper()
	all := servers.Keys(s.t, s.w.rdb, "*")
	slices.Sort(all) // ids are in the order of their making
	named := make(map[string]string)
	for _, key := range all {
		if key != allQueues && !strings.Contains(key, s.settings.Redis.Namespace) {
			continue
		}
		name := strings.ReplaceAll(key, s.settings.Redis.Namespace, "ns")
		for _, part := range strings.FieldsFunc(name, func(r rune) bool { return r == ':' }) {
			if _, err := uuid.Parse(part); err == nil {
				name = strings.ReplaceAll(name, part, "id")
			}
		}
		for strings.Contains(name, ":t:") && named[name] != "" { // records of tasks in each state
			name += "'"
		}
		named[name] = key
	}
	return named
}

const otherVersion = "of another version"

// spoiled are the ways in which a key is made wrong. They leave no time to live.
var spoiled = map[string]func(ctx context.Context, rdb redis.UniversalClient, key string) error{
	"deleted": func(ctx context.Context, rdb redis.UniversalClient, key string) error { return rdb.Del(ctx, key).Err() },
	"of another type": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		isText := rdb.Type(ctx, key).Val() == "string"
		_, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error { // the dead worker still polls
			pipe.Del(ctx, key)
			if isText {
				pipe.RPush(ctx, key, "x")
			} else {
				pipe.Set(ctx, key, "x", 0)
			}
			return nil
		})
		return err
	},
	"emptied": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rewrite(ctx, rdb, key, func(string) string { return "" })
	},
	"cut off": func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rewrite(ctx, rdb, key, func(s string) string { return s[:len(s)/2] })
	},
	otherVersion: func(ctx context.Context, rdb redis.UniversalClient, key string) error {
		return rewrite(ctx, rdb, key, func(s string) string {
			return string(bytes.Replace([]byte(s), []byte(`"campaigns"`), []byte(`"something"`), 1)) // as long, so that asynq can read it
		})
	},
}

// rewrite changes all texts of a key.
func rewrite(ctx context.Context, rdb redis.UniversalClient, key string, change func(string) string) error {
	switch rdb.Type(ctx, key).Val() {
	case "string":
		return rdb.Set(ctx, key, change(rdb.Get(ctx, key).Val()), 0).Err()
	case "hash":
		fields := rdb.HGetAll(ctx, key).Val()
		for name, value := range fields {
			if err := rdb.HSet(ctx, key, name, change(value)).Err(); err != nil {
				return err
			}
		}
	case "list":
		all := rdb.LRange(ctx, key, 0, -1).Val()
		_ = rdb.Del(ctx, key)
		for _, value := range all {
			if err := rdb.RPush(ctx, key, change(value)).Err(); err != nil {
				return err
			}
		}
	case "zset":
		all := rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		_ = rdb.Del(ctx, key)
		for _, z := range all {
			if err := rdb.ZAdd(ctx, key, redis.Z{Score: z.Score, Member: change(z.Member.(string))}).Err(); err != nil {
				return err
			}
		}
	case "set":
		all := rdb.SMembers(ctx, key).Val()
		_ = rdb.Del(ctx, key)
		for _, value := range all {
			if err := rdb.SAdd(ctx, key, change(value)).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Each wrong key is at most its own loss, and keeps no other job from its end.
func TestWhateverRedisHoldsEveryJobIsDone(t *testing.T) {
	t.Parallel()
	server := servers.OwnRedis(t)
	names := slices.Sorted(maps.Keys(newScene(t, server.URL()).keys()))
	if len(names) < 20 {
		t.Fatalf("the scene has too few keys: %q", names)
	}
	var all sync.WaitGroup
	atOnce := make(chan struct{}, 8) // most of a case is waiting
	for _, name := range names {
		for way, spoil := range spoiled {
			if way == otherVersion && !strings.Contains(name, ":t:") {
				continue
			}
			all.Go(func() {
				atOnce <- struct{}{}
				defer func() { <-atOnce }()
				t.Run(name+" "+way, func(t *testing.T) {
					server := server
					if name == allQueues { // of all cases
						server = servers.OwnRedis(t)
					}
					newScene(t, server.URL()).play(name, spoil)
				})
			})
		}
	}
	all.Wait()
}

// play makes a key wrong. A worker then does every job, and the sweep gives it those that are lost.
func (s *scene) play(name string, spoil func(ctx context.Context, rdb redis.UniversalClient, key string) error) {
	var key string
	servers.Eventually(s.t, "this scene has the key", func() bool { // that of a poll lives for less than a second, and then there is the next poll
		key = s.keys()[name]
		return key != ""
	})
	servers.NoError(s.t, spoil(s.t.Context(), s.w.rdb, key))
	tasks, key := s.putOff()
	for _, task := range tasks {
		servers.NoError(s.t, s.w.rdb.ZAdd(s.t.Context(), key, redis.Z{Member: task}).Err()) // due now
	}
	stop := runs(s.t, s.w)
	servers.Eventually(s.t, "every job is done", func() bool {
		// It fails on a key of another type, until a worker's poll has removed that.
		return s.sweep() == nil && servers.Value[int](s.t, s.w.db, `SELECT count(*) FROM jobs WHERE state <> 'succeeded'`) == 0
	})
	servers.NoError(s.t, stop())
	fixture.Sound(s.t, s.w.db)
}
