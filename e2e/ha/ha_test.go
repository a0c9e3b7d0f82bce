//go:build ha

package ha

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/devkit/devstack"
	"triprize/internal/key"
	"triprize/internal/platform/schema"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

const (
	ownerURL    = "postgres://triprize:5a5a@proxy/triprize"
	appURL      = "postgres://triprize_app:5a5a@proxy/triprize"
	pairURL     = "postgres://triprize_app:5a5a@pg1,pg2/triprize?target_session_attrs=read-write" // without haproxy
	sentinelURL = "redis+sentinel://redis1:26379/0?master_name=triprize&addr=redis2:26379&addr=redis3:26379&password=5a5a"
	clusterURL  = "redis+cluster://redis1:7001?addr=redis2:7001&addr=redis3:7001"

	within = 15 * time.Second // so long after a promotion purchases are accepted again, and all are final
	cutFor = 20 * time.Second // a network stays cut before the sale ends: longer than any timeout of a connection
)

// incident is a fault in the middle of a sale and of a draw.
type incident struct {
	name string
	// fault begins it; worker is the host of the worker that is about to record a draw. promoted tells whether another
	// server has taken over, or the primary goes on alone (nil: neither will); mend is for the time when all is final,
	// and in the group returns for the middle of the sale.
	fault func(t *testing.T, worker string) (promoted func() bool, mend func())
	whole func() bool // the servers are ready for the next fault
}

func TestHostsAndNetworksAreLostInTheMiddleOfSalesAndDraws(t *testing.T) {
	if dir == "" {
		t.Fatal("this test needs namespaces of its own; run: make ha")
	}
	makeHosts(t)
	startPostgres(t)
	patroniTimes(t, "8", "1", "3")
	settings := servers.Defaults(t)
	settings.Postgres.URL = ownerURL
	db := servers.Pool(t, settings)
	servers.NoError(t, schema.Migrate(t.Context(), db))

	cluster := sync.OnceValue(func() redises { return startCluster(t) })
	t.Run("sentinel", func(t *testing.T) {
		redis := startSentinel(t)
		endure(t, db, sentinelURL, appURL,
			incident{"Sentinel's primary killed", redis.kill, redis.whole},
			incident{"Postgres' primary killed", killPrimary, postgresWhole},
			incident{"the host of Postgres' primary lost", losePrimary, postgresWhole},
			incident{"the host of Postgres' standby lost", loseStandby, postgresWhole},
			incident{"a worker cut from Postgres", cut("", "5432", "proxy"), postgresWhole},
			incident{"a worker cut from Redis", cut("", "6379:26379", redisHosts...), postgresWhole},
			incident{"an api cut from Postgres", cut("api1", "5432", "proxy"), postgresWhole},
			incident{"the host of an api lost", loseAPI, postgresWhole},
			// The last: a Sentinel whose host is back may demote the new primary, before it hears of it.
			incident{"the host of Sentinel's primary lost", redis.lose, func() bool { return true }})
	})
	t.Run("cluster", func(t *testing.T) {
		redis := cluster()
		endure(t, db, clusterURL, pairURL,
			incident{"a primary of the Cluster killed", redis.kill, redis.whole},
			incident{"Postgres' primary killed, without haproxy", killPrimary, postgresWhole},
			incident{"the host of Postgres' primary lost, without haproxy", losePrimary, postgresWhole},
			incident{"the Patroni of Postgres' primary frozen, without haproxy", freezePatroni, postgresWhole})
	})
	t.Run("returns", func(t *testing.T) {
		cluster()
		endure(t, db, clusterURL, appURL,
			slices.Repeat([]incident{{"the host of Postgres' primary lost and back", loseForAWhile, postgresWhole}}, 10)...)
	})
	t.Run("defaults", func(t *testing.T) {
		cluster()
		patroniTimes(t, "30", "10", "10")
		endure(t, db, clusterURL, appURL,
			incident{"Postgres' primary killed, Patroni's default times", killPrimary, postgresWhole},
			incident{"the host of Postgres' standby lost, Patroni's default times", loseStandby, postgresWhole},
			incident{"the host of Postgres' primary lost, Patroni's default times", losePrimary, postgresWhole})
	})
	if !endured {
		t.Error("there was no incident")
	}
}

var endured bool // -test.run may name a group that there is not

// endure starts two apis, two workers and a scheduler, each on its host, and has them meet one incident after
// the other.
func endure(t *testing.T, db *pgxpool.Pool, redisURL, postgresURL string, incidents ...incident) {
	t.Helper()
	endured = true
	if testing.Short() { // .ci/run: one of each kind of server
		incidents = incidents[:2]
	}
	app, err := key.Create(t.Context(), db, key.App, "shop")
	servers.NoError(t, err)
	var draws, sales []uuid.UUID
	var stops []string
	for range incidents {
		draw := fixture.Campaign(t, db, fixture.Draft(4))
		draws, sales = append(draws, draw), append(sales, fixture.Campaign(t, db, fixture.Draft(130)))
		stops = append(stops, "draw.record@"+draw.String()+"=stop")
	}
	env := []string{"TRIPRIZE_POSTGRES_URL=" + postgresURL, "TRIPRIZE_POSTGRES_REQUIRE_SYNC_STANDBY=true",
		"TRIPRIZE_REDIS_URL=" + redisURL, "TRIPRIZE_LOG_FORMAT=text", "TRIPRIZE_DRAW_SECRET_KEY=" + strings.Repeat("5a", 32),
		"TRIPRIZE_BEACON_DEFAULT=false", "TRIPRIZE_BEACON_RELAYS=", "TRIPRIZE_TEST_FAILPOINTS=" + strings.Join(stops, ";")}
	programs, err := filepath.Abs("../../bin/failpoint")
	servers.NoError(t, err)
	processes := make(map[string]*devstack.Child) // by host
	for _, host := range []string{"api1", "api2", "worker1", "worker2", "scheduler"} {
		process := run(t, host, "root", filepath.Base(t.Name())+"-"+host, append(env, "TRIPRIZE_API_LISTEN="+address(host)+":8080"),
			filepath.Join(programs, strings.TrimRight(host, "12")))
		processes[host] = process
		t.Cleanup(func() { _ = process.Stop(syscall.SIGKILL, time.Minute) }) // of a group that fails
	}
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), "http://"+address("api1")+":8080/readyz"))
	servers.NoError(t, devstack.AwaitHTTP(t.Context(), "http://"+address("api2")+":8080/readyz"))
	api := &fleet.System{T: t, URLs: []string{"http://proxy:8080"}, App: app}
	for i, c := range incidents {
		c.meet(t, db, processes, &sale{System: api, campaign: draws[i]}, &sale{System: api, campaign: sales[i]})
	}
	for _, process := range processes {
		servers.NoError(t, process.Stop(syscall.SIGTERM, time.Minute))
	}
	shell(t, `TRIPRIZE_POSTGRES_URL=$1 $2/triprize audit`, ownerURL, programs)
}

// meet opens a sale, sells another campaign out, and begins the fault while a worker stands still before it
// records that campaign's draw.
func (c incident) meet(t *testing.T, db *pgxpool.Pool, processes map[string]*devstack.Child, drawn, s *sale) {
	t.Helper()
	s.open(8)
	servers.Eventually(t, "the sale is under way", func() bool { return s.accepted() > 50 })
	drawn.buy("mina", 10)
	worker := ""
	servers.Eventually(t, "a worker is about to record the draw", func() bool {
		for host, process := range processes {
			if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.PID())); strings.Contains(string(stat), ") T ") {
				worker = host
			}
		}
		return worker != ""
	})
	began := time.Now()
	promoted, mend := c.fault(t, worker)
	resumed, resume := context.WithCancel(t.Context())
	defer resume()
	go func() { // the other worker stands still, too, when it takes over the draw
		for ; resumed.Err() == nil; time.Sleep(10 * time.Millisecond) {
			for _, process := range processes {
				_ = process.Signal(syscall.SIGCONT)
			}
		}
	}()
	promotion := began
	if promoted != nil {
		servers.Eventually(t, "another server has taken over, or goes on alone", promoted)
		promotion = time.Now()
	} else {
		time.Sleep(cutFor)
	}
	goesOn := func() {
		goal := s.accepted() + 200
		servers.Eventually(t, "the sale goes on", func() bool { return s.accepted() >= goal })
	}
	goesOn()
	returns := strings.HasSuffix(t.Name(), "/returns")
	if returns {
		mend()
		goesOn()
		mend = func() {}
	}
	s.close()

	var jobs, final, succeeded, sold, draws int
	var slowest float64
	servers.Eventually(t, "every 202 is final, and the draw is over", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var completed bool
		err := db.QueryRow(ctx, `
			SELECT count(*), count(finished_at), count(*) FILTER (WHERE state = 'succeeded' AND id = ANY($2)),
			       extract(epoch FROM max(finished_at - accepted_at))::float8,
			       (SELECT count(*) FROM positions WHERE campaign_id = $1 AND state = 'sold'),
			       (SELECT count(*) FROM draws WHERE campaign_id = $3), (SELECT state = 'completed' FROM campaigns WHERE id = $3)
			FROM jobs WHERE campaign_id = $1`, s.campaign, s.jobs, drawn.campaign).
			Scan(&jobs, &final, &succeeded, &slowest, &sold, &draws, &completed)
		return err == nil && final == jobs && completed
	})
	longest, next := s.pause(began, promotion)
	if promoted == nil {
		next = longest // also of a buyer whose request hangs after the others have ended
	}
	after, promised := promotion.Sub(began), len(s.jobs)
	line := fmt.Sprintf("%s: %d answered 202; promotion, or no standby, after %.1f s; next 202 %.1f s later; at most %.1f s without a 202; "+
		"slowest final %.1f s; %d succeeded; %d jobs, %d positions sold, %d draws",
		c.name, promised, after.Seconds(), next.Seconds(), longest.Seconds(), slowest, succeeded, jobs, sold, draws)
	fmt.Println(line) //nolint:forbidigo // also of a test that passes
	// The short part is for each change, on any machine: it has no times.
	if succeeded != promised || jobs != promised || sold != promised || draws != 1 || !testing.Short() && (next > within || !returns && slowest > (after+within).Seconds()) {
		t.Error(line)
	}
	mend()
	servers.Eventually(t, "the servers are whole again", c.whole)
}
