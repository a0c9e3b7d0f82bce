package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Figures of a sale.
const (
	perSecondOfCPU = "purchases per second of cpu" // of api, worker and the primaries
	rowWait        = "wait for a campaign's row, ms"
)

// written returns how many bytes the servers have written so far, and how many Redis has in memory
// (not in a Cluster, which would say it of one node).
func (sys *system) written(ctx context.Context) (map[string]float64, error) {
	var wal, tables float64
	err := sys.db.QueryRow(ctx, `SELECT (pg_current_wal_lsn() - '0/0')::float8, pg_database_size(current_database())::float8`).Scan(&wal, &tables)
	if _, several := sys.setup.redis.(*redis.ClusterClient); several || err != nil {
		return map[string]float64{"WAL": wal, "tables": tables}, err
	}
	aof, aofErr := sys.info(ctx, "persistence", "aof_current_size")
	memory, memoryErr := sys.info(ctx, "memory", "used_memory")
	return map[string]float64{"WAL": wal, "tables": tables, "AOF": aof, "Redis": memory}, errors.Join(aofErr, memoryErr)
}

// rowWait returns how long the processes have waited for rows of campaigns on average: the
// duration of the round trips that lock them.
func (sys *system) rowWait(ctx context.Context) (float64, error) {
	var seconds, waits float64
	for _, url := range sys.fleet.MetricsURLs {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return 0, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), " ")
			figure, _ := strconv.ParseFloat(value, 64) // of other lines it is not read
			switch name {
			case `triprize_postgres_lock_wait_seconds_sum{rows="campaigns"}`:
				seconds += figure
			case `triprize_postgres_lock_wait_seconds_count{rows="campaigns"}`:
				waits += figure
			}
		}
		if err := response.Body.Close(); err != nil {
			return 0, err
		}
	}
	return divide(1000*seconds, waits), nil
}
