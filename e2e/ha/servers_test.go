//go:build ha

package ha

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/servers"
)

const (
	superURL = "postgres://postgres:5a5a@proxy"
	ownerURL = "postgres://triprize:5a5a@proxy/triprize"
	appURL   = "postgres://triprize_app:5a5a@proxy/triprize"
	pairURL  = "postgres://triprize_app:5a5a@pg1,pg2/triprize?target_session_attrs=read-write" // without haproxy
)

// startPostgres starts etcd on three hosts, Postgres under Patroni on two, and haproxy, all as deploy has
// them; and makes the database.
func startPostgres(t *testing.T) {
	t.Helper()
	etcd := []string{"pg1", "pg2", "witness"}
	var members []string
	for _, host := range etcd {
		members = append(members, each(host+"=http://%s:2380", address(host)))
	}
	for _, host := range etcd {
		at := "http://" + address(host)
		run(t, host, "root", "etcd-"+host, nil, "etcd", "--name="+host, "--data-dir="+data(t, "etcd-"+host), "--initial-cluster="+strings.Join(members, ","),
			"--listen-peer-urls="+at+":2380", "--initial-advertise-peer-urls="+at+":2380", "--listen-client-urls="+at+":2379", "--advertise-client-urls="+at+":2379")
	}
	for _, host := range []string{"pg1", "pg2"} {
		shell(t, `chown postgres $1`, data(t, host))
		run(t, host, "postgres", "patroni-"+host, []string{"PATRONI_NAME=" + host, "PATRONI_RESTAPI_CONNECT_ADDRESS=" + host + ":8008",
			"PATRONI_POSTGRESQL_CONNECT_ADDRESS=" + host + ":5432", "PATRONI_POSTGRESQL_DATA_DIR=" + filepath.Join(dir, host, "data"),
			"PATRONI_SUPERUSER_PASSWORD=5a5a", "PATRONI_REPLICATION_PASSWORD=5a5a"}, "patroni", config("patroni/patroni.yml"))
	}
	run(t, "proxy", "root", "haproxy", nil, "haproxy", "-db", "-f", config("haproxy/haproxy.cfg"))
	servers.Eventually(t, "Postgres has a synchronous standby", postgresWhole)
	var db *pgx.Conn
	servers.Eventually(t, "haproxy leads to the primary", func() (ok bool) {
		var err error
		db, err = pgx.Connect(t.Context(), superURL+"/postgres")
		return err == nil
	})
	servers.Exec(t, db, `CREATE ROLE triprize LOGIN PASSWORD '5a5a'`)
	servers.Exec(t, db, `CREATE DATABASE triprize OWNER triprize`)
	servers.NoError(t, db.Close(t.Context()))
	shell(t, `POSTGRES_APP_PASSWORD=5a5a psql --quiet --file=$1 $2`, config("postgres/app-role.sql"), superURL+"/triprize")
}

func config(file string) string {
	path, _ := filepath.Abs("../../deploy/" + file)
	return path
}

// times sets Patroni's: ttl, loop_wait and retry_timeout in seconds.
func times(t *testing.T, ttl, loopWait, retry int) {
	t.Helper()
	body := fmt.Sprintf(`{"ttl": %d, "loop_wait": %d, "retry_timeout": %d}`, ttl, loopWait, retry)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://"+primary()+":8008/config", strings.NewReader(body))
	servers.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	servers.NoError(t, err)
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatal(response.Status)
	}
}

// primary returns the host of Postgres' primary; empty: Patroni says of none that it is.
func primary() string {
	for _, host := range []string{"pg1", "pg2"} {
		if answers("http://" + host + ":8008/primary") {
			return host
		}
	}
	return ""
}

func postgresWhole() bool {
	return primary() != "" && (answers("http://pg1:8008/synchronous") || answers("http://pg2:8008/synchronous"))
}

// writes tells whether the Postgres on a host is not, or no longer, in recovery.
func writes(host string) bool {
	db, err := pgx.Connect(context.Background(), "postgres://postgres:5a5a@"+host+"/postgres?connect_timeout=1")
	if err != nil {
		return false
	}
	defer func() { _ = db.Close(context.Background()) }()
	var recovers bool
	return db.QueryRow(context.Background(), `SELECT pg_is_in_recovery()`).Scan(&recovers) == nil && !recovers
}

// killPostgres ends the primary with SIGKILL, and with it all its sessions. Patroni goes on.
func killPostgres(t *testing.T, host string) {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(dir, host, "data", "postmaster.pid"))
	servers.NoError(t, err)
	n, err := strconv.Atoi(strings.Fields(string(pid))[0])
	servers.NoError(t, err)
	servers.NoError(t, syscall.Kill(n, syscall.SIGKILL))
}

var redisHosts = []string{"redis1", "redis2", "redis3"}

// redises are servers of Redis by address.
type redises map[string]*devstack.Child

func (r redises) start(t *testing.T, host, port string, flags ...string) {
	t.Helper()
	at := net.JoinHostPort(address(host), port)
	args := append([]string{"redis-server", "--bind", address(host), "--port", port, "--dir", data(t, "redis-"+at), "--protected-mode", "no",
		"--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"}, flags...)
	r[at] = run(t, host, "root", "redis-"+at, nil, args...)
}

// startSentinel starts a primary with two replicas, and three Sentinels.
func startSentinel(t *testing.T) redises {
	t.Helper()
	r := make(redises)
	for i, host := range redisHosts {
		var flags []string
		if i > 0 {
			flags = []string{"--replicaof", address("redis1") + " 6379"}
		}
		r.start(t, host, "6379", flags...)
		file := filepath.Join(data(t, "sentinel-"+host), "sentinel.conf")
		text := fmt.Sprintf("port 26379\nprotected-mode no\nsentinel monitor triprize %s 6379 2\nsentinel down-after-milliseconds triprize 2000\nsentinel failover-timeout triprize 6000\n", address("redis1"))
		servers.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		run(t, host, "root", "sentinel-"+host, nil, "redis-server", file, "--sentinel")
	}
	servers.Eventually(t, "Redis has two replicas", r.whole)
	return r
}

// startCluster starts three primaries, each with a replica on another host.
func startCluster(t *testing.T) redises {
	t.Helper()
	r := make(redises)
	var all []string
	for _, port := range []string{"7001", "7002"} {
		for _, host := range redisHosts {
			r.start(t, host, port, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
			all = append(all, net.JoinHostPort(address(host), port))
		}
	}
	for at := range r {
		servers.Eventually(t, at+" answers", func() bool { return info(at, "role:master") })
	}
	shell(t, `redis-cli --cluster create "$@" --cluster-replicas 1 --cluster-yes`, all...)
	servers.Eventually(t, "each primary has a replica", r.whole)
	return r
}

// info tells whether the INFO of a server has a line.
func info(at, line string) bool {
	db := redis.NewClient(&redis.Options{Addr: at, MaxRetries: -1})
	defer func() { _ = db.Close() }()
	text, err := db.Info(context.Background(), "server", "replication", "cluster").Result()
	return err == nil && strings.Contains(text, line+"\r\n")
}

// primary returns a primary that has replicas; with a queue of a Cluster, the one of its slot.
func (r redises) primary(t *testing.T, queue string) (found string) {
	t.Helper()
	for at := range r {
		if info(at, "cluster_enabled:1") {
			db := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{at}})
			defer func() { _ = db.Close() }()
			node, err := db.MasterForKey(t.Context(), "asynq:{"+queue+"}:pending")
			servers.NoError(t, err)
			return node.Options().Addr
		}
		if info(at, "role:master") {
			found = at
		}
	}
	return found
}

// primaries counts the servers that run and are no replicas.
func (r redises) primaries() (n int) {
	for at := range r {
		if info(at, "role:master") {
			n++
		}
	}
	return n
}

// whole tells whether every server runs, and every replica follows its primary.
func (r redises) whole() bool {
	linked := 0
	for at := range r {
		if info(at, "master_link_status:up") {
			linked++
		}
	}
	return linked+r.primaries() == len(r) && (len(r) == 3 && linked == 2 || len(r) == 6 && linked == 3)
}
