//go:build ha

package ha

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/servers"
)

var patroniOn = make(map[string]*devstack.Child) // by host

// startPostgres starts etcd on three hosts, Postgres under Patroni on two, and haproxy, as deploy has them.
func startPostgres(t *testing.T) {
	t.Helper()
	deploy, err := filepath.Abs("../../deploy")
	servers.NoError(t, err)
	var members []string
	for _, host := range []string{"pg1", "pg2", "witness"} {
		members = append(members, host+"=http://"+address(host)+":2380")
	}
	for _, host := range []string{"pg1", "pg2", "witness"} {
		peer, client := "http://"+address(host)+":2380", "http://"+address(host)+":2379"
		run(t, host, "root", "etcd-"+host, nil, "etcd", "--name="+host, "--data-dir=.", "--initial-cluster="+strings.Join(members, ","),
			"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--listen-client-urls="+client, "--advertise-client-urls="+client)
	}
	for _, host := range []string{"pg1", "pg2"} {
		patroniOn[host] = run(t, host, "postgres", host, []string{"PATRONI_NAME=" + host, "PATRONI_RESTAPI_CONNECT_ADDRESS=" + host + ":8008",
			"PATRONI_POSTGRESQL_CONNECT_ADDRESS=" + host + ":5432", "PATRONI_POSTGRESQL_DATA_DIR=" + filepath.Join(dir, host, "data"), "PATRONI_POSTGRESQL_PGPASS=" + filepath.Join(dir, host, "pgpass"),
			"PATRONI_SUPERUSER_PASSWORD=5a5a", "PATRONI_REPLICATION_PASSWORD=5a5a"}, "patroni", deploy+"/patroni/patroni.yml")
	}
	run(t, "proxy", "root", "haproxy", nil, "haproxy", "-db", "-f", deploy+"/haproxy/haproxy.cfg")
	servers.Eventually(t, "Postgres has a synchronous standby, and haproxy leads to the primary", func() bool { return postgresWhole(t) && writes("proxy") })
	shell(t, `psql --quiet --command="CREATE ROLE triprize LOGIN PASSWORD '5a5a'" --command="CREATE DATABASE triprize OWNER triprize" $1/postgres
		POSTGRES_APP_PASSWORD=5a5a psql --quiet --file=$2/postgres/app-role.sql $1/triprize`, "postgres://postgres:5a5a@proxy", deploy)
}

// primary returns the host of Postgres' primary, and the other; empty: Patroni says of none that it is.
func primary(t *testing.T) (host, other string) {
	switch {
	case answers(t, "http://pg1:8008/primary"):
		return "pg1", "pg2"
	case answers(t, "http://pg2:8008/primary"):
		return "pg2", "pg1"
	}
	return "", ""
}

// patroniTimes sets ttl, loop_wait and retry_timeout, in seconds.
func patroniTimes(t *testing.T, ttl, loopWait, retry int) {
	t.Helper()
	shell(t, fmt.Sprintf(`patronictl -c ../../deploy/patroni/patroni.yml edit-config --force -s ttl=%d -s loop_wait=%d -s retry_timeout=%d`, ttl, loopWait, retry))
}

// postgresWhole tells whether the standby is synchronous, and Patroni knows it.
func postgresWhole(t *testing.T) bool {
	host, other := primary(t)
	return host != "" && answers(t, "http://"+other+":8008/synchronous") && query(host, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND replay_lsn = pg_current_wal_flush_lsn()") == "1\n"
}

// query returns the answer of the Postgres on a host; empty: it does not answer.
func query(host, sql string) string {
	return output("psql", "--no-psqlrc", "-Atc", sql, "postgres://postgres:5a5a@"+host+"/postgres?connect_timeout=2")
}

// writes tells whether the Postgres on a host is not, or no longer, in recovery.
func writes(host string) bool { return query(host, "SELECT pg_is_in_recovery()") == "f\n" }

var redisHosts = []string{"redis1", "redis2", "redis3"}

// redises are servers of Redis by address.
type redises map[string]*devstack.Child

func (r redises) start(t *testing.T, host, port string, flags ...string) (at string) {
	t.Helper()
	at = address(host) + ":" + port
	r[at] = run(t, host, "root", "redis-"+at, nil, append([]string{"redis-server", "--bind", address(host), "--port", port,
		"--protected-mode", "no", "--appendonly", "yes", "--maxmemory-policy", "noeviction"}, flags...)...)
	return at
}

// startSentinel starts a primary with two replicas, and three Sentinels.
func startSentinel(t *testing.T) redises {
	t.Helper()
	r := make(redises)
	r.start(t, "redis1", "6379")
	r.start(t, "redis2", "6379", "--replicaof", address("redis1")+" 6379")
	r.start(t, "redis3", "6379", "--replicaof", address("redis1")+" 6379")
	servers.Eventually(t, "Redis has two replicas", func() bool { return r.whole(t) })
	for _, host := range redisHosts {
		conf := fmt.Sprintf("port 26379\nprotected-mode no\nsentinel monitor triprize %s 6379 2\n"+
			"sentinel down-after-milliseconds triprize 2000\nsentinel failover-timeout triprize 6000\n", address("redis1"))
		run(t, host, "root", "sentinel-"+host, nil, "sh", "-c", `echo "$0" >sentinel.conf; exec redis-server sentinel.conf --sentinel`, conf)
	}
	for _, host := range redisHosts {
		servers.Eventually(t, "a Sentinel knows all others", func() bool {
			return strings.Contains(output("redis-cli", "-u", "redis://"+host+":26379", "info", "sentinel"), "slaves=2,sentinels=3")
		})
	}
	return r
}

// startCluster starts three primaries, each with a replica on another host.
func startCluster(t *testing.T) redises {
	t.Helper()
	r := make(redises)
	var all []string
	for _, port := range []string{"7001", "7002"} {
		for _, host := range redisHosts {
			all = append(all, r.start(t, host, port, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
		}
	}
	servers.Eventually(t, "all answer", func() bool { return r.count("role:master") == len(all) })
	shell(t, `redis-cli --cluster create "$@" --cluster-replicas 1 --cluster-yes`, all...)
	servers.Eventually(t, "each primary has a replica", func() bool { return r.whole(t) })
	return r
}

// has tells whether the INFO of a server has a line.
func has(at, line string) bool {
	return strings.Contains(output("redis-cli", "-u", "redis://"+at, "info", "replication"), line+"\r\n")
}

func (r redises) count(line string) (n int) {
	for at := range r {
		if has(at, line) {
			n++
		}
	}
	return n
}

// primaries says how many there are to be.
func (r redises) primaries() int { return map[int]int{3: 1, 6: 3}[len(r)] }

// whole tells whether every server runs, and every replica follows its primary.
func (r redises) whole(*testing.T) bool {
	return r.count("role:master") == r.primaries() && r.count("master_link_status:up") == len(r)-r.primaries()
}

// primary returns where the primary is; of a Cluster, the one with the queue of purchases.
func (r redises) primary() (primary string) {
	for at := range r {
		if has(at, "role:master") && !strings.HasPrefix(output("redis-cli", "-u", "redis://"+at, "exists", "asynq:{triprize-purchase}:pending"), "MOVED") {
			primary = at
		}
	}
	return primary
}

// lose takes the host of the primary, and of a Sentinel, off the network.
func (r redises) lose(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old := r.primary()
	host := redisHosts[slices.IndexFunc(redisHosts, func(host string) bool { return strings.HasPrefix(old, address(host)+":") })]
	shell(t, `ip link set $1 down`, host)
	promoted = func() bool {
		for at := range r {
			if at != old && has(at, "role:master") {
				return true
			}
		}
		return false
	}
	return promoted, func() { shell(t, `ip link set $1 up`, host) }
}

// kill ends the primary.
func (r redises) kill(t *testing.T, _ string) (promoted func() bool, mend func()) {
	victim := r.primary()
	r[victim].Kill()
	return func() bool { return r.count("role:master") == r.primaries() }, func() { servers.NoError(t, r[victim].Start()) }
}

// killPrimary ends Postgres' primary, and with it all its sessions. Its Patroni goes on.
func killPrimary(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old, other := primary(t)
	shell(t, `kill -KILL $(head -n 1 $1/data/postmaster.pid)`, filepath.Join(dir, old))
	return func() bool { return writes(other) }, func() {}
}

// losePrimary takes the host of Postgres' primary off the network.
func losePrimary(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old, other := primary(t)
	shell(t, `ip link set $1 down`, old)
	// Patroni 3.0 does not always see that it has to rewind an old primary whose network is back: it is copied anew.
	return func() bool { return writes(other) }, func() {
		shell(t, `ip link set $1 up`, old)
		servers.NoError(t, patroniOn[old].Stop(syscall.SIGTERM, time.Minute))
		shell(t, `rm -r $1`, filepath.Join(dir, old, "data"))
		servers.NoError(t, patroniOn[old].Start())
	}
}

// loseStandby takes the host of the synchronous standby off the network.
func loseStandby(t *testing.T, _ string) (promoted func() bool, mend func()) {
	host, standby := primary(t)
	shell(t, `ip link set $1 down`, standby)
	return func() bool { return query(host, "SHOW synchronous_standby_names") == "\n" }, func() { shell(t, `ip link set $1 up`, standby) }
}

// loseAPI takes the host of an api off the network.
func loseAPI(t *testing.T, _ string) (promoted func() bool, mend func()) {
	shell(t, `ip link set api1 down`)
	return nil, func() { shell(t, `ip link set api1 up`) }
}

// cut drops all packets between a host (empty: that of the worker) and ports of others, so that connections stay half open.
func cut(host, ports string, others ...string) func(*testing.T, string) (func() bool, func()) {
	return func(t *testing.T, worker string) (promoted func() bool, mend func()) {
		if host != "" {
			worker = host
		}
		for _, other := range others {
			shell(t, `ip netns exec $1 iptables -A INPUT -p tcp -s $2 --sport $3 -j DROP
				ip netns exec $1 iptables -A OUTPUT -p tcp -d $2 --dport $3 -j DROP`, worker, address(other), ports)
		}
		return nil, func() { shell(t, `ip netns exec $1 iptables -F`, worker) }
	}
}
