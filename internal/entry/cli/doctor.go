package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"triprize/internal/drawing"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/schema"
)

// finding is what doctor says about one thing.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, info, unknown, warning or critical, as of the checks of the api
	Detail string `json:"detail"`
	Do     string `json:"do"` // what to do, unless it is ok
}

// doctor examines an installation by itself: none of its checks needs the api, or the success of another on other servers.
type doctor []finding

func doctorCommand() *cobra.Command {
	c := &cobra.Command{Use: "doctor", Short: "Examine settings, Postgres and Redis, without the api; status 1 if something is a warning or critical, 2 if the settings cannot be read", Args: cobra.NoArgs}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return checks(onDatabase(c, 0, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, settings config.Settings) error {
		redisx.LogTo(slog.New(slog.DiscardHandler)) // the findings say it
		d, faults, out := doctor{}, 0, cmd.OutOrStdout()
		stripe := settings.Payments.Stripe
		d.add("settings", cond(stripe.Enabled() && !stripe.Live(), "info", "ok"), "nothing, unless buyers are to pay", "valid; cards %v, live %v", stripe.Enabled(), stripe.Live())
		d.examinePostgres(cmd.Context(), db, settings)
		d.examineRedis(cmd.Context(), settings.Redis)
		for _, f := range d {
			faults += cond(f.State == "warning" || f.State == "critical", 1, 0)
		}
		return report(out, *asJSON, map[string]any{"ok": faults == 0, "checks": d}, func() {
			for _, f := range d {
				say(out, "%-8s  %s: %s%s", f.State, f.Check, cell(f.Detail), cond(f.Do == "", "", "\n          do: "+f.Do))
			}
		}, faults, "thing is wrong", "things are wrong")
	}))
}

func cond[T any](is bool, then, otherwise T) T {
	if is {
		return then
	}
	return otherwise
}

func (d *doctor) add(check, state, do, format string, args ...any) {
	*d = append(*d, finding{check, state, fmt.Sprintf(format, args...), cond(state == "ok", "", do)})
}

// try makes a check, for at most limit; do says what to do if it fails. What it may not see is unknown.
func (d *doctor) try(ctx context.Context, limit time.Duration, check, do string, run func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := run(ctx)
	if (postgres.IsDenied(err) || redisx.IsDenied(err)) && check != mustWrite {
		d.add(check, "unknown", "let somebody look who may", "%v", err)
	} else if err != nil {
		d.add(check, "critical", do, "%v", err)
	}
	return err == nil
}

// mustWrite is a check that is no question.
const mustWrite = "redis"

// compareClock reads the clock of a server. How long the answer was under way does not count.
func (d *doctor) compareClock(ctx context.Context, limit time.Duration, server string, read func(context.Context) (time.Time, error)) {
	check, do, begun := "clock of "+server, "run NTP on this machine and on that of "+server, time.Now()
	d.try(ctx, limit, check, do, func(ctx context.Context) error {
		there, err := read(ctx)
		if ahead := max(time.Until(there), min(there.Sub(begun), 0)); err == nil {
			d.add(check, cond(ahead.Abs() < 2*time.Second, "ok", "critical"), do, "%.3f s ahead of this machine", ahead.Seconds())
		}
		return err
	})
}

// asked are the queries on Postgres. Each returns a state and a detail for all that it finds.
var asked = []struct{ check, do, sql string }{
	{"role of postgres", "use its primary", `SELECT CASE WHEN pg_is_in_recovery() THEN 'critical' ELSE 'ok' END, CASE WHEN pg_is_in_recovery() THEN 'a standby' ELSE 'a primary' END`},
	{"collation", "the system sorts otherwise than its indexes do: REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION",
		`SELECT CASE WHEN datcollversion IS DISTINCT FROM pg_database_collation_actual_version(oid) THEN 'critical' ELSE 'ok' END,
		format('%s, version %s, of the system %s', datcollate, coalesce(datcollversion, 'none'), coalesce(pg_database_collation_actual_version(oid), 'none')) FROM pg_database WHERE datname = current_database()`},
	{"schema", "triprize migrate up, by the newer program", `SELECT CASE WHEN n = {newest} THEN 'ok' WHEN n > {newest} THEN 'info' ELSE 'critical' END, format('version %s, of this program {newest}', n)
		FROM (SELECT coalesce(max(version_id), 0) AS n FROM goose_db_version WHERE is_applied) s`},
	{"durability of postgres", "set all three to on: otherwise a power failure takes what was accepted, or destroys data", `SELECT CASE WHEN 'off' IN (fsync, pages, commit) THEN 'critical' ELSE 'ok' END,
		format('fsync %s, full_page_writes %s, synchronous_commit %s', fsync, pages, commit)
		FROM (SELECT current_setting('fsync') AS fsync, current_setting('full_page_writes') AS pages, current_setting('synchronous_commit') AS commit) s`},
	{"standbys", "docs/availability.md: without a synchronous standby, the loss of the machine loses what was accepted", `
		SELECT CASE WHEN names <> '' AND n > 0 AND current_setting('synchronous_commit') IN ('on', 'remote_apply') THEN 'ok' WHEN {required} THEN 'warning' ELSE 'info' END,
		format('synchronous_standby_names "%s", %s standbys connected', names, n)
		FROM (SELECT current_setting('synchronous_standby_names') AS names, (SELECT count(*) FROM pg_stat_replication) AS n) s`},
	{"connections", "raise max_connections, or lower postgres.max_connections of the processes", `SELECT CASE WHEN sum(n) > 0.9 * most THEN 'critical' ELSE 'ok' END,
		format('%s of %s: %s', sum(n), most, string_agg(n || ' ' || name, ', ' ORDER BY n DESC, name))
		FROM (SELECT coalesce(nullif(application_name, ''), 'without a name') AS name, count(*) AS n, current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most
			FROM pg_stat_activity WHERE datid IS NOT NULL GROUP BY 1) s GROUP BY most`},
	// A transaction of the processes has ended after ten seconds. A query is cut at its first quote: only a parser knows where a string ends.
	{"locks", "docs/runbooks/postgres.md#triprizelocktimeouts, or SELECT pg_terminate_backend(PID)", `SELECT CASE WHEN age > '10 seconds' THEN 'critical' ELSE 'info' END,
		format('pid %s (%s) blocks %s sessions, since %s: %s', pid, name, blocked, date_trunc('second', age), left(regexp_replace(regexp_replace(query, '[''"].*|\$[^0-9].*', '…'), '(?<![$\w])\d+', '…', 'g'), 200))
		FROM (SELECT b.pid, a.application_name AS name, count(DISTINCT w.pid) AS blocked, clock_timestamp() - least(a.xact_start, min(w.since)) AS age, a.query
			FROM (SELECT pid, min(waitstart) AS since FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = current_database() GROUP BY pid LIMIT 100) w
			CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b (pid) LEFT JOIN pg_stat_activity a ON a.pid = b.pid
			GROUP BY b.pid, a.application_name, a.xact_start, a.query ORDER BY age DESC LIMIT 10) s`},
}

const drawKeyPage = "docs/runbooks/draws.md#triprizedrawkeywrong"

func (d *doctor) examinePostgres(ctx context.Context, db *pgxpool.Pool, settings config.Settings) {
	limit := cmp.Or(settings.Postgres.ConnectTimeout, 6*time.Second)
	if !d.try(ctx, limit, "postgres", "start it, or correct postgres.url; nothing else in it was checked", db.Ping) {
		return
	}
	d.compareClock(ctx, limit, "postgres", func(ctx context.Context) (there time.Time, err error) {
		err = db.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&there)
		return there, err
	})
	d.try(ctx, limit, "writes to postgres", "docs/runbooks/postgres.md#triprizewritesfailing", func(ctx context.Context) error {
		err := drawing.Rewrite(ctx, db)
		if err == nil {
			d.add("writes to postgres", "ok", "", "a row was written")
		}
		return err
	})
	newest, _ := schema.Newest() // of the program's own files
	values := strings.NewReplacer("{newest}", fmt.Sprint(newest), "{required}", fmt.Sprint(settings.Postgres.RequireSyncStandby))
	for _, a := range postgres.Assumed {
		d.try(ctx, limit, a.Name, a.Do, func(ctx context.Context) error {
			var holds bool
			var found string
			err := db.QueryRow(ctx, a.SQL).Scan(&holds, &found)
			if err == nil {
				d.add(a.Name, cond(holds, "ok", "critical"), a.Do, "%s", found)
			}
			return err
		})
	}
	for _, a := range asked {
		var state, detail string
		found := len(*d)
		if d.try(ctx, limit, a.check, a.do, func(ctx context.Context) error {
			return postgres.Scan(ctx, db, func() { d.add(a.check, state, a.do, "%s", detail) }, []any{&state, &detail}, values.Replace(a.sql))
		}) && len(*d) == found {
			d.add(a.check, "ok", "", "none")
		}
	}
	d.try(ctx, 10*limit, "draw key", drawKeyPage, func(ctx context.Context) error {
		if settings.Draw.SecretKey == "" {
			d.add("draw key", "info", "set draw.secret_key as for the api", "it is not set here: no secret was opened")
			return nil
		}
		keys, err := keyring.Parse(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys)
		if err != nil {
			return err
		}
		opened, unopened, err := drawing.OpenSecrets(ctx, db, keys)
		if err == nil {
			d.add("draw key", cond(len(unopened) == 0, "ok", "critical"), drawKeyPage, "opens the secrets of %d unfinished campaigns, and not those of %d: %v",
				opened, len(unopened), unopened[:min(len(unopened), 5)])
		}
		return err
	})
}

func (d *doctor) examineRedis(ctx context.Context, settings config.Redis) {
	limit := cmp.Or(settings.Timeout, 6*time.Second)
	rdb, err := redisx.Open(settings, "triprize-cli")
	if err != nil {
		d.add(mustWrite, "critical", "correct redis.url", "%v", err)
		return
	}
	defer func() { _ = rdb.Close() }()
	if !d.try(ctx, limit, mustWrite, "start it, or correct redis.url: docs/runbooks/redis.md", func(ctx context.Context) error {
		key := settings.Namespace + ":doctor:" + uuid.NewString()
		if err := redisx.CheckKind(ctx, rdb); err != nil {
			return err
		}
		err := cmp.Or(rdb.Set(ctx, key, "", time.Minute).Err(), rdb.Del(ctx, key).Err())
		if err == nil {
			d.add(mustWrite, "ok", "", "a key was written and deleted")
		}
		return err
	}) {
		return
	}
	d.compareClock(ctx, limit, "redis", func(ctx context.Context) (time.Time, error) { return rdb.Time(ctx).Result() })
	if err := redisx.CheckChannels(ctx, rdb, settings.Namespace); err == nil {
		d.add("channels of redis", "ok", "", "a message was published")
	} else {
		d.add("channels of redis", "critical", redisx.AllowChannels, "%v", err)
	}
	d.examineFleet(ctx, limit, rdb, settings.Namespace)
	if settings.FailsOver() {
		const do = "docs/runbooks/redis.md#triprizeredisstandbyaway"
		d.try(ctx, limit, "failover of redis", do, func(ctx context.Context) error {
			lacks, err := redisx.Lacks(ctx, settings, rdb)
			if err == nil {
				d.add("failover of redis", cond(lacks == "", "ok", "warning"), do, "%s", cmp.Or(lacks, "nothing is missing"))
			}
			return err
		})
	}
	d.try(ctx, limit, "durability of redis", "docs/deployment.md#redis", func(ctx context.Context) error {
		info, err := rdb.Info(ctx, "persistence", "memory").Result() // of a Cluster, of one server
		if aof, all := strings.Contains(info, "aof_enabled:1"), strings.Contains(info, "maxmemory_policy:noeviction"); err == nil {
			d.add("durability of redis", cond(!all, "critical", cond(aof, "ok", "info")), "docs/deployment.md#redis: appendonly yes, maxmemory-policy noeviction", "appendonly %v, noeviction %v", aof, all)
		}
		return err
	})
}

// examineFleet asks the heartbeats which processes there are: one that is frozen answers nobody, and refuses nothing.
func (d *doctor) examineFleet(ctx context.Context, limit time.Duration, rdb redis.UniversalClient, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fleet, err := queue.ReadFleet(ctx, rdb, namespace)
	if err != nil || len(fleet.Processes) == 0 {
		d.add("processes", "info", "start them", "none has sent a heartbeat in the last ten minutes (%v)", err)
		return
	}
	missing := ""
	for _, role := range []string{queue.RoleAPI, queue.RoleWorker, queue.RoleScheduler} {
		missing += cond(len(fleet.Named(role, queue.Alive)) == 0, ", no "+role+" is alive", "")
	}
	d.add("processes", cond(missing != "", "critical", cond(fleet.Crashes > 2, "warning", "ok")), "docs/runbooks/processes.md", "%d apis, %d workers%s; %d workers ended unexpectedly",
		len(fleet.Named(queue.RoleAPI, queue.Alive)), len(fleet.Named(queue.RoleWorker, queue.Alive)), missing, fleet.Crashes)
}
