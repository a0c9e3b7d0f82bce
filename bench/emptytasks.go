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
	// taskConcurrency and taskPoll are what a worker of ours asks of asynq.
	taskConcurrency = 128
	taskPoll        = 5 * time.Millisecond
	// backlog bounds how far the enqueuers run ahead. Without a bound they keep
	// Redis so busy that the one goroutine that dequeues hardly gets a turn; with
	// it both sides go as fast as the pair can.
	backlog   = 1024
	emptyTask = "empty"
)

// runEmptyTasks lets asynq alone move tasks that do nothing: enqueued by many
// goroutines, one task each, while one server processes them.
func runEmptyTasks(ctx context.Context, s *stage, measured time.Duration) (r result, err error) {
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
	room := time.NewTicker(taskPoll) // so that the end of the window is noticed
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
