package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	enqueuers = 32
	// taskConcurrency and taskPoll are the settings of a Triprize worker for asynq.
	taskConcurrency = 128
	taskPoll        = 5 * time.Millisecond
	// backlog bounds the tasks in the queue. Without a bound the enqueuers keep Redis so
	// busy that the only goroutine that dequeues is slowed down.
	backlog = 1024
)

// runEmptyTasks measures asynq alone, with tasks that do nothing: many goroutines
// enqueue them one by one, and one server processes them.
func runEmptyTasks(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	opts, err := redis.ParseURL(s.stack.Redis.URL())
	if err != nil {
		return r, err
	}
	forServer, forClient := redis.NewClient(opts), redis.NewClient(opts)
	defer func() {
		err = errors.Join(err, s.redis.FlushAll(context.WithoutCancel(ctx)).Err(), forServer.Close(), forClient.Close())
	}()
	w := newWindow(&meter{groups: s.groups()})
	var processed atomic.Int64
	ahead := make(chan struct{}, backlog) // one token for each task in the queue
	server := asynq.NewServerFromRedisClient(forServer, asynq.Config{Concurrency: taskConcurrency, TaskCheckInterval: taskPoll, LogLevel: asynq.ErrorLevel})
	mux := asynq.NewServeMux()
	mux.HandleFunc("empty", func(context.Context, *asynq.Task) error {
		<-ahead
		if w.isOpen() {
			processed.Add(1)
		}
		return nil
	})
	if err := server.Start(mux); err != nil {
		return r, err
	}
	queue := asynq.NewClientFromRedisClient(forClient)
	r, err = w.repeat(ctx, measured, enqueuers, func(int) caller {
		return func() (bool, error) {
			select {
			case ahead <- struct{}{}:
				_, err := queue.EnqueueContext(ctx, asynq.NewTask("empty", nil))
				return true, err
			case <-time.After(taskPoll): // the window may be over
				return false, nil
			}
		}
	})
	server.Shutdown()
	r.note(rate, perSecond(int(processed.Load()), w.elapsed))
	r.noteUsage(w, int(processed.Load()))
	return r, err
}
