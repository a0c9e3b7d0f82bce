package boot

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/lock"
	"triprize/internal/platform/redisx"
)

// openLocks sets Locks: on the servers of the quorum, if one is configured (quorum
// is then true), otherwise on the Redis of the process. Servers may be away at
// start and at any time after.
func (p *Process) openLocks() (quorum bool, closeAll func(), err error) {
	var opened []*redis.Client
	closeAll = func() {
		for _, client := range opened {
			_ = client.Close()
		}
	}
	clients := []redis.UniversalClient{p.Redis}
	if urls := p.Settings.Locks.URLs(); p.Settings.Locks.Enabled && urls != nil {
		clients = nil
		for i, url := range urls {
			settings := p.Settings.Redis
			settings.URL = url
			client, err := redisx.Open(settings, "triprize-"+p.Name+"-locks", redisx.Once)
			if err != nil {
				closeAll()
				return false, nil, fmt.Errorf("setting locks.redis_urls (TRIPRIZE_LOCKS_REDIS_URLS): number %d: %w", i+1, err)
			}
			opened, clients = append(opened, client), append(clients, client)
		}
	}
	p.Locks = lock.New(clients, p.Settings.Redis.Namespace, p.Settings.Locks, p.Registry)
	return len(opened) > 0, closeAll, nil
}
