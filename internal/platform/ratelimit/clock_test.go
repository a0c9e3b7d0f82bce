package ratelimit_test

import (
	"context"
	"crypto/sha1" // what Redis names scripts by
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clock is the clock that the script of redis_rate asks, instead of Redis's own: it
// stands still until a test moves it. Its hook changes the script on its
// way to Redis: the time is in its text, and the script's key lives for keep
// longer than it would, so that no slow machine sees it run out.
type clock struct {
	t    *testing.T
	mu   sync.Mutex
	now  time.Time
	text string // of the script; empty until it was sent once
}

const keep = time.Hour

func newClock(t *testing.T) *clock {
	return &clock{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// move lets time pass.
func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *clock) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// change replaces the script of a command, or its digest.
func (c *clock) change(_ context.Context, cmd redis.Cmder) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const asks, expires = `redis.call("TIME")`, `"EX", `
	args, now := cmd.Args(), fmt.Sprintf(`{"%d", "%d"}`, c.now.Unix(), c.now.Nanosecond()/1000)
	if cmd.Name() == "eval" {
		c.text = args[1].(string)
		if strings.Count(c.text, asks) != 1 || strings.Count(c.text, expires) != 1 {
			c.t.Errorf("the script has not one %s and one %s", asks, expires)
		}
	}
	changed := strings.NewReplacer(asks, now, expires, expires+"3600 + ").Replace(c.text)
	switch cmd.Name() {
	case "eval":
		args[1] = changed
	case "evalsha":
		digest := sha1.Sum([]byte(changed))
		args[1] = hex.EncodeToString(digest[:])
	}
	return nil
}
