//go:build ha

package ha

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"triprize/devkit/devstack"
	"triprize/internal/testkit/servers"
)

// dir is a folder in memory; tools/ha.sh mounts it, in namespaces that only this process and its children are in.
var dir = os.Getenv("TRIPRIZE_TEST_HA_DIR")

// hosts are the names of the network namespaces; each has one address.
var hosts = []string{"proxy", "api1", "api2", "worker1", "worker2", "scheduler", "pg1", "pg2", "witness", "redis1", "redis2", "redis3"}

func address(host string) string { return fmt.Sprint("10.47.0.", 11+slices.Index(hosts, host)) }

// makeHosts connects all hosts, and this process, by a switch.
func makeHosts(t *testing.T) {
	t.Helper()
	shell(t, `ip link set lo up; ip link add br0 type bridge; ip address add 10.47.0.1/24 dev br0; ip link set br0 up`)
	for _, host := range hosts {
		shell(t, `ip netns add $1
			ip link add $1 type veth peer name eth0 netns $1
			ip link set $1 master br0 up
			ip -n $1 address add $2/24 dev eth0
			ip -n $1 link set eth0 up
			ip -n $1 link set lo up
			echo $2 $1 >>/etc/hosts`, host, address(host))
	}
}

// shell runs a script.
func shell(t *testing.T, script string, args ...string) {
	t.Helper()
	if out, err := exec.Command("sh", append([]string{"-euc", script, "sh"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", script, args, err, out)
	}
}

// run starts a process on a host, with /run and a working directory, dir/name, of its own. Its log is
// bin/ha/log/name.log.
func run(t *testing.T, host, user, name string, env []string, args ...string) *devstack.Child {
	t.Helper()
	shell(t, `mkdir -m 700 $2; chown $1 $2`, user, filepath.Join(dir, name))
	c := &devstack.Child{Name: name, Command: func() *exec.Cmd {
		const script = `mount -t tmpfs run /run; mkdir -m 777 /run/postgresql; user=$1; shift; exec setpriv --reuid=$user --regid=$user --clear-groups "$@"`
		cmd := exec.Command("ip", append([]string{"netns", "exec", host, "sh", "-euc", script, "sh", user}, args...)...)
		cmd.Env, cmd.Dir = append(env, "LC_ALL=C.UTF-8", "PATH="+os.Getenv("PATH")), filepath.Join(dir, name)
		if log, err := os.OpenFile("../../bin/ha/log/"+name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			cmd.Stdout, cmd.Stderr = log, log
		}
		return cmd
	}}
	servers.NoError(t, c.Start())
	return c
}

// answers tells whether a URL answers 200.
func answers(url string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// lose takes a host off the network, until restore.
func lose(t *testing.T, host string) (restore func()) {
	shell(t, `ip link set $1 down`, host)
	return func() { shell(t, `ip link set $1 up`, host) }
}

// output returns what a command prints; empty: it cannot be run.
func output(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	return string(out)
}

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
			"PATRONI_POSTGRESQL_CONNECT_ADDRESS=" + host + ":5432", "PATRONI_SUPERUSER_PASSWORD=5a5a", "PATRONI_REPLICATION_PASSWORD=5a5a",
			"PATRONI_POSTGRESQL_DATA_DIR=" + filepath.Join(dir, host, "data"), "PATRONI_POSTGRESQL_PGPASS=" + filepath.Join(dir, host, "pgpass"),
		}, "patroni", deploy+"/patroni/patroni.yml")
	}
	run(t, "proxy", "root", "haproxy", nil, "haproxy", "-db", "-f", deploy+"/haproxy/haproxy.cfg")
	servers.Eventually(t, "Postgres has a synchronous standby", postgresWhole)
	servers.Eventually(t, "haproxy leads to the primary", func() bool { return writes("proxy") })
	shell(t, `psql --quiet --command="CREATE ROLE triprize LOGIN PASSWORD '5a5a'" --command="CREATE DATABASE triprize OWNER triprize ENCODING 'UTF8' TEMPLATE template0" $1/postgres
		POSTGRES_APP_PASSWORD=5a5a psql --quiet --file=$2/postgres/app-role.sql $1/triprize`, "postgres://postgres:5a5a@proxy", deploy)
}

// primary returns the host of Postgres' primary, and the other; "" if neither says that it is.
func primary() (host, other string) {
	for host, other := range map[string]string{"pg1": "pg2", "pg2": "pg1"} {
		if answers("http://" + host + ":8008/primary") {
			return host, other
		}
	}
	return "", ""
}

// patroniTimes sets ttl, loop_wait and retry_timeout, in seconds.
func patroniTimes(t *testing.T, times ...string) {
	t.Helper()
	shell(t, `patronictl -c ../../deploy/patroni/patroni.yml edit-config --force -s ttl=$1 -s loop_wait=$2 -s retry_timeout=$3`, times...)
}

// postgresWhole tells whether the standby is synchronous, and Patroni knows it.
func postgresWhole() bool {
	const current = `SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND replay_lsn = pg_current_wal_flush_lsn()`
	host, other := primary()
	return answers("http://"+other+":8008/synchronous") && query(host, current) == "1\n"
}

// query returns the answer of the Postgres on a host; empty: it does not answer.
func query(host, sql string) string {
	return output("psql", "--no-psqlrc", "-Atc", sql, "postgres://postgres:5a5a@"+host+"/postgres?connect_timeout=2")
}

// writes tells whether the Postgres on a host is not, or no longer, in recovery.
func writes(host string) bool { return query(host, "SELECT pg_is_in_recovery()") == "f\n" }

var redisHosts = []string{"redis1", "redis2", "redis3"}

// redises are servers of Redis by host:port.
type redises map[string]*devstack.Child

// start starts a server with the settings of a page's block, and more.
func (r redises) start(t *testing.T, host, port, settings, more string) {
	t.Helper()
	r[host+":"+port] = runRedis(t, host, "redis-"+host+"-"+port, fmt.Sprintf("bind %s\nport %s\nprotected-mode no\nappendonly yes\nmaxmemory-policy noeviction\n%s%s\n",
		address(host), port, settings, more))
}

// runRedis starts a server that may write to its settings.
func runRedis(t *testing.T, host, name, settings string, flags ...string) *devstack.Child {
	t.Helper()
	return run(t, host, "root", name, nil, append([]string{"sh", "-c", `echo "$0" >redis.conf; exec redis-server redis.conf "$@"`, settings}, flags...)...)
}

// block returns the block of docs/deployment.md that begins with a setting, for a host.
func block(t *testing.T, first, host string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/deployment.md")
	servers.NoError(t, err)
	_, text, found := strings.Cut(string(page), "<!-- make ha takes this block as it is -->\n```text\n"+first)
	if text, _, _ = strings.Cut(text, "```"); !found {
		t.Fatalf("docs/deployment.md has no block that begins with %s", first)
	}
	return strings.NewReplacer("NAME", "triprize", "PRIMARY", "redis1", "PASSWORD", "5a5a", "HOST", host).Replace(first + text)
}

// startSentinel starts a primary with two replicas, and three Sentinels.
func startSentinel(t *testing.T) redises {
	t.Helper()
	r := make(redises)
	for _, host := range redisHosts {
		follows := map[bool]string{true: "replicaof redis1 6379"}[host != "redis1"]
		r.start(t, host, "6379", block(t, "replica-announce-ip", host), follows)
	}
	servers.Eventually(t, "Redis has two replicas", r.whole)
	for _, host := range redisHosts {
		runRedis(t, host, "sentinel-"+host, "port 26379\nprotected-mode no\n"+block(t, "sentinel resolve-hostnames", host), "--sentinel")
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
			r.start(t, host, port, block(t, "cluster-enabled", host), "")
			all = append(all, address(host)+":"+port)
		}
	}
	servers.Eventually(t, "all answer", func() bool { return len(r.having("role:master")) == len(all) })
	shell(t, `redis-cli --cluster create "$@" --cluster-replicas 1 --cluster-yes`, all...)
	servers.Eventually(t, "each primary has a replica", r.whole)
	return r
}

// having lists the servers whose INFO has a line.
func (r redises) having(line string) (list []string) {
	for at := range r {
		if strings.Contains(output("redis-cli", "--no-auth-warning", "-u", r.url(at), "info", "replication"), line+"\r\n") {
			list = append(list, at)
		}
	}
	return list
}

// url is that of a server. Those of the Cluster have no password.
func (r redises) url(at string) string {
	return "redis://" + map[bool]string{true: "default:5a5a@"}[strings.HasSuffix(at, ":6379")] + at
}

// primaries says how many there are to be.
func (r redises) primaries() int { return map[int]int{3: 1, 6: 3}[len(r)] }

// promoted tells whether there are as many primaries as there are to be.
func (r redises) promoted() bool { return len(r.having("role:master")) == r.primaries() }

// whole tells whether every server runs, and every replica follows its primary.
func (r redises) whole() bool {
	return r.promoted() && len(r.having("master_link_status:up")) == len(r)-r.primaries()
}

// primary returns where the primary is; of a Cluster, the one with the queue of purchases.
func (r redises) primary() (primary string) {
	for _, at := range r.having("role:master") {
		if !strings.HasPrefix(output("redis-cli", "--no-auth-warning", "-u", r.url(at), "exists", "asynq:{triprize-purchase}:pending"), "MOVED") {
			primary = at
		}
	}
	return primary
}

// lose takes the host of Sentinel's primary, and of a Sentinel, off the network.
func (r redises) lose(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old := r.primary()
	host, _, _ := strings.Cut(old, ":")
	delete(r, old) // nobody is to wait for its answers
	return func() bool { return len(r.having("role:master")) > 0 }, lose(t, host)
}

// kill ends the primary.
func (r redises) kill(t *testing.T, _ string) (promoted func() bool, mend func()) {
	victim := r[r.primary()]
	victim.Kill()
	return r.promoted, func() { servers.NoError(t, victim.Start()) }
}

// killPrimary ends Postgres' primary, and with it all its sessions. Its Patroni goes on.
func killPrimary(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old, other := primary()
	shell(t, `kill -KILL $(head -n 1 $1/data/postmaster.pid)`, filepath.Join(dir, old))
	return func() bool { return writes(other) }, func() {}
}

// losePrimary takes the host of Postgres' primary off the network. A person brings it back, as docs/availability.md says:
// its Patroni is stopped before its network returns.
func losePrimary(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old, other := primary()
	restore := lose(t, old)
	return func() bool { return writes(other) }, func() {
		servers.NoError(t, patroniOn[old].Stop(syscall.SIGTERM, time.Minute))
		restore()
		servers.NoError(t, patroniOn[old].Start())
	}
}

// loseForAWhile takes the host of Postgres' primary off the network. It comes back by itself, and becomes the standby: the
// newer Patroni of the group returns does not promote it again.
func loseForAWhile(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old, other := primary()
	restore := lose(t, old)
	return func() bool { return writes(other) }, func() {
		restore()
		servers.Eventually(t, "the host that was lost is the standby", func() bool {
			host, _ := primary()
			return host == other && postgresWhole()
		})
	}
}

// freezePatroni leaves Postgres' primary without a Patroni that would demote it. Nobody waits for it: it is killed, with
// its Postgres, before another is started.
func freezePatroni(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old, other := primary()
	servers.NoError(t, patroniOn[old].Signal(syscall.SIGSTOP))
	return func() bool { return writes(other) }, func() {
		servers.NoError(t, patroniOn[old].Signal(syscall.SIGKILL))
		shell(t, `kill -KILL $(head -n 1 $1/data/postmaster.pid)`, filepath.Join(dir, old))
		servers.NoError(t, patroniOn[old].Stop(syscall.SIGKILL, time.Minute))
		servers.NoError(t, patroniOn[old].Start())
	}
}

// loseStandby takes the host of the synchronous standby off the network.
func loseStandby(t *testing.T, _ string) (promoted func() bool, mend func()) {
	host, standby := primary()
	return func() bool { return query(host, "SHOW synchronous_standby_names") == "\n" }, lose(t, standby)
}

// loseAPI takes the host of an api off the network.
func loseAPI(t *testing.T, _ string) (promoted func() bool, mend func()) { return nil, lose(t, "api1") }

// cut drops all packets between a host (empty: that of the worker) and ports of others, so that connections stay half open.
func cut(host, ports string, others ...string) func(*testing.T, string) (func() bool, func()) {
	return func(t *testing.T, worker string) (promoted func() bool, mend func()) {
		from := cmp.Or(host, worker)
		for _, other := range others {
			shell(t, `ip netns exec $1 iptables -A INPUT -p tcp -s $2 --sport $3 -j DROP
				ip netns exec $1 iptables -A OUTPUT -p tcp -d $2 --dport $3 -j DROP`, from, address(other), ports)
		}
		return nil, func() { shell(t, `ip netns exec $1 iptables -F`, from) }
	}
}
