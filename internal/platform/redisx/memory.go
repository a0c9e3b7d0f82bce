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
	err = EachPrimary(ctx, rdb, func(ctx context.Context, one redis.UniversalClient) error {
		info, err := one.Info(ctx, "memory").Result()
		var used, limit float64
		for line := range strings.Lines(info) {
			_, _ = fmt.Sscanf(line, "used_memory:%g", &used) // other lines do not match
			_, _ = fmt.Sscanf(line, "maxmemory:%g", &limit)
		}
		mu.Lock()
		defer mu.Unlock()
		if limit > 0 {
			share = max(share, used/limit)
		}
		return err
	})
	return share, err
}
