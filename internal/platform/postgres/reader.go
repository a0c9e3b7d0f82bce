package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
)

// Reader reads long lists where they disturb nobody: on the server of postgres.read_url, or without one on the primary.
type Reader struct {
	primary, replica *pgxpool.Pool // replica is nil without one
}

// readConnections are those to the replica. A page has one while it is read.
const readConnections = 4

// NewReader returns a reader beside the pool of the primary. As [Open], it does not connect.
func NewReader(ctx context.Context, settings config.Postgres, primary *pgxpool.Pool, name string) (*Reader, error) {
	r := &Reader{primary: primary}
	if settings.ReadURL == "" {
		return r, nil
	}
	settings.URL, settings.MaxConnections = settings.ReadURL, readConnections
	replica, err := Open(ctx, settings, name+"-read")
	if err != nil {
		return nil, errors.New("setting postgres.read_url is not a connection string")
	}
	r.replica = replica
	return r, nil
}

// Close closes the connections to the replica.
func (r *Reader) Close() {
	if r.replica != nil {
		r.replica.Close()
	}
}

const (
	replayWait  = 8 * time.Second // less than a request may take
	replayProbe = 100 * time.Millisecond
)

// Now returns where to read all that is committed by now: the replica, when it has replayed it, or an unavailable Error if it is
// too far behind. Later reads may see more.
func (r *Reader) Now(ctx context.Context) (DB, error) {
	if r.replica == nil {
		return r.primary, nil
	}
	var position string
	if err := r.primary.QueryRow(ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&position); err != nil {
		return nil, fault.At(err, "postgres.Reader.Now")
	}
	ctx, cancel := context.WithTimeout(ctx, replayWait)
	defer cancel()
	var last error
	for {
		var replays, there bool
		err := r.replica.QueryRow(ctx, `SELECT pg_is_in_recovery(), coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)`, position).Scan(&replays, &there)
		switch {
		case err == nil && !replays: // it was promoted: only postgres.url knows which server sells
			return r.primary, nil
		case err == nil && there:
			return r.replica, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Unavailable, fmt.Errorf("the replica has not replayed %s within %s: %w", position, replayWait, errors.Join(last, ctx.Err())),
				"the replica of postgres.read_url does not answer, or is behind the primary; retry later")
		case <-time.After(replayProbe):
		}
	}
}
