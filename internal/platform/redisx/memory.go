package redisx

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// MemoryUse returns the used memory as a share of maxmemory, 0 without a maxmemory; of a Cluster, that of the fullest
// primary.
func MemoryUse(ctx context.Context, rdb redis.UniversalClient) (share float64, err error) {
	var mu sync.Mutex
	read := func(ctx context.Context, one redis.Cmdable) error {
		info, err := one.Info(ctx, "memory").Result()
		var used, most float64
		for line := range strings.Lines(info) {
			_, _ = fmt.Sscanf(line, "used_memory:%g", &used) // other lines do not match
			_, _ = fmt.Sscanf(line, "maxmemory:%g", &most)
		}
		mu.Lock()
		defer mu.Unlock()
		if most > 0 {
			share = max(share, used/most)
		}
		return err
	}
	if cluster, is := rdb.(*redis.ClusterClient); is {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error { return read(ctx, one) })
	} else {
		err = read(ctx, rdb)
	}
	return share, err
}
