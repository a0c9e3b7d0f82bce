package redisx

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"triprize/internal/platform/config"
)

// Lacks returns what a failover after the next loss of a server would lack, in words; empty: nothing. Each Sentinel of
// the URL must answer, and see all others, a quorum and a replica; each primary of a Cluster must have a replica. An error
// means that it is not known, such as that the user may not ask. A single server has no failover.
func Lacks(ctx context.Context, settings config.Redis, rdb redis.UniversalClient) (string, error) {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		nodes, err := cluster.ClusterNodes(ctx).Result()
		return lacksOfCluster(nodes), err
	}
	servers, err := settings.Servers()
	roots, unread := readCA(settings.CAFile)
	if err = cmp.Or(err, unread); err != nil || servers.Sentinel == nil {
		return "", err
	}
	o := servers.Sentinel
	trust(o.TLSConfig, roots, true)
	lacks, errs, all := make([]string, len(o.SentinelAddrs)), make([]error, len(o.SentinelAddrs)), sync.WaitGroup{}
	for i, address := range o.SentinelAddrs {
		all.Go(func() {
			client := redis.NewSentinelClient(&redis.Options{Addr: address, Username: o.SentinelUsername, Password: o.SentinelPassword, TLSConfig: o.TLSConfig,
				MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
			defer func() { _ = client.Close() }()
			if lacks[i], errs[i] = lacksOfSentinel(ctx, client, o.MasterName); errs[i] != nil && !redis.IsPermissionError(errs[i]) {
				lacks[i], errs[i] = fmt.Sprintf("the Sentinel at %s does not answer as it should: %v", address, errs[i]), nil
			}
		})
	}
	all.Wait()
	slices.Sort(lacks) // most see the same
	return strings.Trim(strings.Join(slices.Compact(lacks), "; "), "; "), cmp.Or(errs...)
}

func lacksOfSentinel(ctx context.Context, client *redis.SentinelClient, name string) (lacks string, err error) {
	away := func(one map[string]string) bool { return strings.Contains(one["flags"], "s_down") }
	others, err := client.Sentinels(ctx, name).Result()
	if err != nil {
		return "", err
	}
	replicas, err := client.Replicas(ctx, name).Result()
	if err != nil {
		return "", err
	}
	switch err = client.CkQuorum(ctx, name).Err(); {
	case redis.HasErrorPrefix(err, "NOQUORUM"):
		return err.Error(), nil
	case slices.ContainsFunc(others, away):
		return "a Sentinel is away: " + others[slices.IndexFunc(others, away)]["name"], err
	case !slices.ContainsFunc(replicas, func(one map[string]string) bool { return !away(one) && one["master-link-status"] == "ok" }):
		return "no replica is connected", err
	}
	return "", err
}

// lacksOfCluster reads an answer of CLUSTER NODES: lines of id, address, flags, primary, two times, epoch, link, and slots.
func lacksOfCluster(nodes string) string {
	replicas := make(map[string]bool) // of a primary's id
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) > 7 && f[7] == "connected" && !strings.Contains(f[2], "fail") {
			replicas[f[3]] = true
		}
	}
	var lacks []string
	for line := range strings.Lines(nodes) {
		f := strings.Fields(line)
		if len(f) <= 8 { // without slots a server is no loss
			continue
		}
		switch address, _, _ := strings.Cut(f[1], "@"); {
		case strings.Contains(f[2], "fail"):
			lacks = append(lacks, address+" is away")
		case !replicas[f[0]]:
			lacks = append(lacks, "no replica is connected to "+address)
		}
	}
	return strings.Join(lacks, "; ")
}
