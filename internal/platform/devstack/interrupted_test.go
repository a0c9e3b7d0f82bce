package devstack

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestALeftoverRedisIsStoppedBeforeTheNext(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	run := play(t, "stack", dirVariable+"="+dir, orphanVariable+"=1")
	run.kill(t)
	if !exists(run.Redis) {
		t.Fatal("nothing was left over")
	}
	begin(t, Options{Dir: dir, Unsafe: true})
	if exists(run.Redis) {
		t.Error("Redis is still there")
	}
}

func TestAStartThatWasInterruptedDoesNotSpoilTheFolder(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // Ctrl-C while the cluster is being made
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(dir, "postgres", "PG_VERSION")); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if s, err := Start(ctx, Options{Dir: dir, Unsafe: true}); err == nil {
		_ = s.Stop()
		t.Fatal("it was too late to interrupt it")
	}
	begin(t, Options{Dir: dir, Unsafe: true})
}
