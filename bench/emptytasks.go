package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	backlog   = 1024
	emptyTask = "empty"
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
	w := &window{meter: &meter{groups: s.groups()}}
	var processed atomic.Int64
	ahead := make(chan struct{}, backlog) // one token for each task in the queue
	server := asynq.NewServerFromRedisClient(forServer, asynq.Config{Concurrency: taskConcurrency, TaskCheckInterval: taskPoll, LogLevel: asynq.ErrorLevel})
	mux := asynq.NewServeMux()
	mux.HandleFunc(emptyTask, func(context.Context, *asynq.Task) error {
		<-ahead
		if w.isOpen() {
			processed.Add(1)
		}
		return nil
	})
	if err := server.Start(mux); err != nil {
		return r, err
	}
	asynqClient := asynq.NewClientFromRedisClient(forClient)
	failures := make(chan error, enqueuers)
	var group sync.WaitGroup
	for range enqueuers {
		group.Go(func() {
			if err := enqueueUntilOver(ctx, asynqClient, w, ahead); err != nil {
				failures <- err
			}
		})
	}
	err = w.pass(ctx, measured, nil)
	group.Wait()
	server.Shutdown()
	if err != nil {
		return r, err
	}
	r = newResult(int(processed.Load()), w.elapsed, nil)
	r.noteUsage(w, int(processed.Load()))
	select {
	case failure := <-failures:
		r.wrong = append(r.wrong, fmt.Sprintf("enqueue: %v", failure))
	default:
	}
	return r, nil
}

// enqueueUntilOver enqueues as long as the window lasts and the queue has room.
func enqueueUntilOver(ctx context.Context, c *asynq.Client, w *window, ahead chan<- struct{}) error {
	room := time.NewTicker(taskPoll) // wakes the loop to see the end of the window
	defer room.Stop()
	for !w.isOver() && ctx.Err() == nil {
		select {
		case ahead <- struct{}{}:
		case <-room.C:
			continue
		}
		if _, err := c.EnqueueContext(ctx, asynq.NewTask(emptyTask, nil)); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
