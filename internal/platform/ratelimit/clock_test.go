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
// stands still until a test moves it. It is a hook that changes the script on its
// way to Redis: the time is in its text, and the script's key lives for keep
// longer than it would, so that no slow machine sees it run out.
type clock struct {
	t    *testing.T
	mu   sync.Mutex
	now  time.Time
	text string // of the changed script, without the time; empty until the script was sent once
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

func (*clock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*clock) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *clock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.change(cmd.Name(), cmd.Args())
		}
		return next(ctx, cmds)
	}
}

// change replaces the script of a command, or its digest.
func (c *clock) change(name string, args []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch name {
	case "eval":
		text := args[1].(string)
		for old, changed := range map[string]string{
			`redis.call("TIME")`: theTime,
			`"EX", `:             `"EX", 3600 + `,
		} {
			if strings.Count(text, old) != 1 {
				c.t.Errorf("the script has not one %s", old)
			}
			text = strings.Replace(text, old, changed, 1)
		}
		c.text, args[1] = text, c.script(text)
	case "evalsha":
		digest := sha1.Sum([]byte(c.script(c.text)))
		args[1] = hex.EncodeToString(digest[:])
	}
}

const theTime = "{THE TIME}"

// script returns a text with the time, as TIME would answer.
func (c *clock) script(text string) string {
	return strings.Replace(text, theTime, fmt.Sprintf(`{"%d", "%d"}`, c.now.Unix(), c.now.Nanosecond()/1000), 1)
}
