//go:build ha

package ha

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/campaign"
	"triprize/internal/key"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// within is the bound: so long after a promotion purchases are accepted again and final.
const within = 15 * time.Second

// incident is a fault in the middle of a sale and of a draw.
type incident struct {
	name string
	// fault begins it; worker is the host of the worker that is about to record a draw. promoted tells
	// whether another server has taken over; mend ends the fault when all is final.
	fault func(t *testing.T, worker string) (promoted func() bool, mend func())
	whole func() bool // the servers are ready for the next fault
}

// fleet is two apis, two workers and a scheduler, each on its own host.
type fleet struct {
	db      *pgxpool.Pool // of the owner
	key     string        // an app's
	workers map[string]*devstack.Child
}

func TestEveryPurchaseIsFinalAndEveryDrawOnceWhateverHostOrNetworkIsLost(t *testing.T) {
	makeHosts(t)
	startPostgres(t)
	times(t, 8, 1, 3)
	settings := servers.Defaults(t)
	settings.Postgres.URL = ownerURL
	db := servers.Pool(t, settings)
	servers.NoError(t, schema.Migrate(t.Context(), db))
	app, err := key.Create(t.Context(), db, key.App, "shop")
	servers.NoError(t, err)
	f := &fleet{db: db, key: app}

	t.Run("sentinel", func(t *testing.T) {
		redis := startSentinel(t)
		url := "redis+sentinel://redis1:26379/0?master_name=triprize&addr=redis2:26379&addr=redis3:26379"
		f.endure(t, url, appURL, []incident{
			{"Sentinel's primary killed", redis.kill, redis.whole},
			{"Postgres' primary killed", killPrimary, postgresWhole},
			{"the host of Postgres' primary lost", losePrimary, postgresWhole},
			{"a worker cut from Postgres", cutFrom("", "proxy"), postgresWhole},
			{"a worker cut from Redis", cutFrom("", redisHosts...), postgresWhole},
			{"an api cut from Postgres", cutFrom("api1", "proxy"), postgresWhole},
		})
	})
	t.Run("cluster", func(t *testing.T) {
		redis := startCluster(t)
		f.endure(t, clusterURL, pairURL, []incident{
			{"a node of the Cluster killed", redis.kill, redis.whole},
			{"Postgres' primary killed, without haproxy", killPrimary, postgresWhole},
		})
	})
	t.Run("single", func(t *testing.T) {
		startSentinel(t)
		f.endure(t, "redis://redis1:6379/0", appURL, []incident{
			{"Postgres' primary killed", killPrimary, postgresWhole},
			{"the host of Postgres' primary lost", losePrimary, postgresWhole},
			{"a worker cut from Postgres", cutFrom("", "proxy"), postgresWhole},
			{"a worker cut from Redis", cutFrom("", redisHosts...), postgresWhole},
			{"an api cut from Postgres", cutFrom("api1", "proxy"), postgresWhole},
		})
	})
}

const clusterURL = "redis+cluster://redis1:7001?addr=redis2:7001&addr=redis3:7001"

func (r redises) kill(t *testing.T, _ string) (promoted func() bool, mend func()) {
	at, before := r.primary(t, "triprize-purchase"), r.primaries()
	r[at].Kill()
	return func() bool { return r.primaries() == before }, func() { servers.NoError(t, r[at].Start()) } // before the kill it was one of them
}

func (r redises) stop(t *testing.T) {
	for _, child := range r {
		servers.NoError(t, child.Stop(syscall.SIGKILL, time.Minute))
	}
}

func killPrimary(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old := primary()
	killPostgres(t, old)
	return func() bool { return writes(other(old)) }, func() {}
}

func losePrimary(t *testing.T, _ string) (promoted func() bool, mend func()) {
	old := primary()
	unplug(t, old)
	return func() bool { return writes(other(old)) }, func() { plug(t, old) }
}

func other(host string) string { return map[string]string{"pg1": "pg2", "pg2": "pg1"}[host] }

// cutFrom cuts a host, or the worker, from others.
func cutFrom(host string, others ...string) func(*testing.T, string) (func() bool, func()) {
	return func(t *testing.T, worker string) (promoted func() bool, mend func()) {
		if host == "" {
			host = worker
		}
		return nil, cut(t, host, others...)
	}
}

// endure starts the fleet, and lets it meet one incident after the other.
func (f *fleet) endure(t *testing.T, redisURL, postgresURL string, incidents []incident) {
	t.Helper()
	var draws, sales []uuid.UUID
	var stops []string
	for range incidents {
		draws, sales = append(draws, fixture.Campaign(t, f.db, fixture.Draft(4))), append(sales, fixture.Campaign(t, f.db, fixture.Draft(130)))
		stops = append(stops, "draw.record@"+draws[len(draws)-1].String()+"=stop")
	}
	env := []string{"TRIPRIZE_POSTGRES_URL=" + postgresURL, "TRIPRIZE_REDIS_URL=" + redisURL, "TRIPRIZE_LOG_FORMAT=text",
		"TRIPRIZE_DRAW_SECRET_KEY=" + strings.Repeat("5a", 32), "TRIPRIZE_BEACON_DEFAULT=false", "TRIPRIZE_BEACON_RELAYS="}
	var all []*devstack.Child
	start := func(host, kind string, own ...string) *devstack.Child {
		program, err := filepath.Abs("../../bin/failpoint/" + kind)
		servers.NoError(t, err)
		all = append(all, run(t, host, "root", host, append(own, env...), program))
		return all[len(all)-1]
	}
	for _, host := range []string{"api1", "api2"} {
		start(host, "api", "TRIPRIZE_API_LISTEN="+address(host)+":8080")
	}
	f.workers = make(map[string]*devstack.Child)
	for _, host := range []string{"worker1", "worker2"} {
		f.workers[host] = start(host, "worker", "TRIPRIZE_TEST_FAILPOINTS="+strings.Join(stops, ";"))
	}
	start("scheduler", "scheduler")
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), "http://api1:8080/readyz"))
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), "http://api2:8080/readyz"))
	for i, c := range incidents {
		f.meet(t, c, draws[i], sales[i])
	}
	for _, child := range all {
		servers.NoError(t, child.Stop(syscall.SIGTERM, time.Minute))
	}
	shell(t, `TRIPRIZE_POSTGRES_URL=$1 ../../bin/failpoint/triprize audit`, ownerURL)
}

// meet opens a sale, sells another campaign out, stops the worker that is about to record its draw, and
// begins the fault.
func (f *fleet) meet(t *testing.T, c incident, drawn, sold uuid.UUID) {
	t.Helper()
	s := open(t, sold, f.key)
	servers.Eventually(t, "the sale is under way", func() bool { return s.accepted() > 50 })
	(&sale{t: t, campaign: drawn, key: f.key}).buyUntilAccepted("mina", 10)
	worker := ""
	servers.Eventually(t, "a worker is about to record the draw", func() bool {
		for host, child := range f.workers {
			if stopped(child.PID()) {
				worker = host
			}
		}
		return worker != ""
	})
	began := time.Now()
	promoted, mend := c.fault(t, worker)
	for _, child := range f.workers {
		servers.NoError(t, child.Signal(syscall.SIGCONT))
	}
	promotion, over := began, began.Add(cutFor)
	if promoted != nil {
		servers.Eventually(t, "another server has taken over", promoted)
		promotion = time.Now()
		over = promotion
	}
	goal := -1
	servers.Eventually(t, "many purchases after it", func() bool {
		if goal < 0 && time.Now().After(over) {
			goal = s.accepted() + 200
		}
		return goal >= 0 && s.accepted() >= goal
	})
	s.close()
	var jobs, final, succeeded int
	var slowest float64
	servers.Eventually(t, "every 202 is final, and the draw is over", func() bool {
		for _, child := range f.workers {
			_ = child.Signal(syscall.SIGCONT) // the other may come to the draw, too
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := f.db.QueryRow(ctx, `
			SELECT count(*), count(finished_at), count(*) FILTER (WHERE state = 'succeeded'), coalesce(extract(epoch FROM max(finished_at - accepted_at)), 0)::float8
			FROM jobs WHERE id = ANY($1)`, s.jobs).Scan(&jobs, &final, &succeeded, &slowest)
		now, drawErr := campaign.Get(ctx, f.db, drawn)
		return err == nil && drawErr == nil && (jobs < len(s.jobs) || final == jobs) && now.State == campaign.Completed
	})
	lost := len(s.jobs) - jobs
	longest, after := s.pause(began, promotion)
	line := fmt.Sprintf("%-58s 202s %d; promoted after %4.1f s; longest without a 202 %4.1f s; first 202 after the promotion %3.1f s; slowest final %4.1f s; lost %d",
		c.name, len(s.jobs), promotion.Sub(began).Seconds(), longest.Seconds(), after.Seconds(), slowest, lost)
	fmt.Println(line)
	if lost > 0 || succeeded != jobs || after > within || slowest > (promotion.Sub(began)+within).Seconds() {
		t.Errorf("%s: %d succeeded", line, succeeded)
	}
	if n := servers.Value[int](t, f.db, `SELECT count(*) FROM positions WHERE campaign_id = $1 AND state = 'sold'`, sold); n != succeeded {
		t.Errorf("%s: %d positions are sold", c.name, n)
	}
	if n := servers.Value[int](t, f.db, `SELECT count(*) FROM jobs WHERE campaign_id = $1`, sold); n != len(s.jobs) {
		t.Errorf("%s: %d jobs", c.name, n)
	}
	if n := servers.Value[int](t, f.db, `SELECT count(*) FROM draws WHERE campaign_id = $1`, drawn); n != 1 {
		t.Errorf("%s: %d draws", c.name, n)
	}
	mend()
	servers.Eventually(t, "the servers are whole again", c.whole)
}

// cutFor is how long a network stays cut before the sale ends: longer than any timeout of a connection.
const cutFor = 20 * time.Second

// stopped tells whether a process has met a failpoint.
func stopped(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(data), ") ")
	return err == nil && strings.HasPrefix(state, "T")
}
