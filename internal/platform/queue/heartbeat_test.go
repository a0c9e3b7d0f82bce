package queue_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/testkit/fixture"
)

// beat runs the Heartbeat of a new worker until the test ends.
func (o *office) beat(every, ttl time.Duration) *queue.Heartbeat {
	o.t.Helper()
	p, _ := o.beatUntil(o.rdb, every, ttl)
	return p
}

// beatUntil runs the Heartbeat of a new worker on a client of its own, until
// end is called, which waits until Run has returned.
func (o *office) beatUntil(rdb *redis.Client, every, ttl time.Duration) (p *queue.Heartbeat, end func()) {
	p = queue.NewHeartbeat(rdb, o.namespace, uuid.NewString(), config.Worker{HeartbeatInterval: every, HeartbeatTTL: ttl})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx, fixture.Logger(o.t))
	}()
	end = func() {
		cancel()
		<-done
	}
	o.t.Cleanup(end)
	return p, end
}

// heard returns the key of the only worker that is heard in the namespace, and
// how long it will be without another beat; 0 when none is heard.
func (o *office) heard() (key string, rest time.Duration) {
	o.t.Helper()
	keys, err := o.rdb.Keys(o.t.Context(), o.namespace+":worker:*").Result()
	if err != nil || len(keys) > 1 {
		o.t.Fatal(keys, err)
	}
	if len(keys) == 0 {
		return "", 0
	}
	rest, err = o.rdb.PTTL(o.t.Context(), keys[0]).Result()
	if err != nil || rest == -1 {
		o.t.Fatalf("%s lives for %v, %v", keys[0], rest, err)
	}
	return keys[0], max(rest, 0)
}

func TestAWorkerThatRunsIsHeardAgainAndAgain(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const ttl = time.Minute
	o.beat(20*time.Millisecond, ttl)
	beats, last := 0, time.Duration(0)
	eventually(t, "it beats five times", func() bool {
		_, rest := o.heard()
		if rest > last { // it only shrinks between two beats
			beats++
		}
		if rest > ttl {
			t.Fatalf("it would count as alive for %s", rest)
		}
		last = rest
		return beats >= 5
	})
}

func TestAWorkerThatIsNotHeardAnyLongerIsDead(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.beat(time.Hour, 300*time.Millisecond) // beats once
	eventually(t, "the worker is heard", func() bool { key, _ := o.heard(); return key != "" })
	eventually(t, "the worker is dead", func() bool { key, _ := o.heard(); return key == "" })
}

func TestAWorkerThatEndsSaysFarewell(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	_, end := o.beatUntil(o.rdb, 5*time.Second, time.Hour)
	eventually(t, "the worker is heard", func() bool { key, _ := o.heard(); return key != "" })
	end()
	if key, rest := o.heard(); key != "" {
		t.Errorf("after its end %s is heard for %s", key, rest)
	}
}

func TestAWorkerIsHeardAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	settings, redisServer := privateRedis(t)
	o := newOfficeOn(t, settings)
	o.beat(100*time.Millisecond, time.Minute)
	eventually(t, "the worker is heard", func() bool { key, _ := o.heard(); return key != "" })
	redisServer.Kill() // it keeps nothing
	if err := redisServer.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is heard again", func() bool {
		keys, err := o.rdb.Keys(t.Context(), o.namespace+":worker:*").Result()
		return err == nil && len(keys) == 1
	})
}

func TestAFarewellDoesNotWaitForASilentRedis(t *testing.T) {
	t.Parallel()
	settings := fixture.Defaults(t)
	settings.Redis.URL = silent(t)
	settings.Redis.ReadTimeout, settings.Redis.DialTimeout = time.Minute, time.Minute
	o := newOfficeOn(t, settings)
	_, end := o.beatUntil(o.rdb, 50*time.Millisecond, time.Minute)
	began := time.Now()
	end()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the end took %s", took)
	}
}

func TestKeysOfPresenceAreThoseOfItsNamespace(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	p := o.beat(time.Second, time.Minute)
	task := uuid.New()
	if err := p.Started(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is heard", func() bool { key, _ := o.heard(); return key != "" })
	key, _ := o.heard()
	worker := strings.TrimPrefix(key, o.namespace+":worker:")
	holds, err := o.rdb.HGetAll(t.Context(), o.namespace+":active-tasks").Result()
	if err != nil || len(holds) != 1 || holds[task.String()] != worker {
		t.Errorf("%s holds %v, %v", worker, holds, err)
	}
	// Another namespace on the same Redis sees none of it.
	other := newOffice(t)
	if key, _ := other.heard(); key != "" {
		t.Errorf("heard elsewhere: %s", key)
	}
}
