package ratelimit

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"triprize/internal/testkit/servers"
)

func TestABadKeyInAPipelineIsNobodyElsesFault(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.RedisSettings(t))
	rdb := servers.Redis(t, settings)
	shared := newScripts(rdb, settings.Redis.Namespace, servers.Patience)
	t.Cleanup(shared.checks.Close)
	servers.NoError(t, rdb.HSet(t.Context(), settings.Redis.Namespace+":bad", "no", "number").Err())
	get := func(key string) *redis.Cmd {
		return redis.NewCmd(t.Context(), "eval", "return redis.call('GET', KEYS[1]) or 'none'", 1, settings.Redis.Namespace+":"+key)
	}
	answers, err := shared.run(t.Context(), []*redis.Cmd{get("bad"), get("good")})
	if err != nil || len(answers) != 2 || answers[0].Err() == nil || answers[1].Err() != nil || answers[1].Val() != "none" {
		t.Errorf("%v, %v", answers, err)
	}
	if _, err := shared.run(t.Context(), []*redis.Cmd{get("bad")}); err == nil {
		t.Error("when all fail, Redis is not there")
	}
	unknown := redis.NewCmd(t.Context(), "evalsha", "0123456789012345678901234567890123456789", 0)
	if answers, err := shared.run(t.Context(), []*redis.Cmd{unknown}); err != nil || !redis.HasErrorPrefix(answers[0].Err(), "NOSCRIPT") {
		t.Errorf("a script that Redis has forgotten: %v, %v", answers, err)
	}
}
