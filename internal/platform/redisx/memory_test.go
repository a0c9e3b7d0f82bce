package redisx_test

import (
	"testing"

	"triprize/internal/platform/redisx"
	"triprize/internal/testkit/servers"
)

func TestTheUsedMemoryIsAShareOfTheMost(t *testing.T) {
	t.Parallel()
	settings := servers.RedisSettings(t)
	settings.Redis.URL = servers.OwnRedis(t).URL()
	rdb := servers.Redis(t, settings)
	for _, row := range []struct {
		most          string
		least, atMost float64
	}{{"0", 0, 0}, {"100mb", 0.001, 0.5}, {"1", 100_000, 1e9}} {
		servers.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", row.most).Err())
		if share, err := redisx.MemoryUse(t.Context(), rdb); err != nil || share < row.least || share > row.atMost {
			t.Errorf("of %s it is %g, %v", row.most, share, err)
		}
	}
}
