package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Primary identifies a primary. Its zero value is one that does not say who it is: some hosted services do not.
type Primary struct {
	System   int64 // the identifier of its data: initdb makes one, and its backups and standbys have the same
	Timeline int64 // Postgres counts it up at each promotion
}

// ErrAnotherPrimary means that the server is not the newest primary that is known: an old one that came back
// after a failover, or one with other data. It is detected and not fenced: see docs/availability.md.
var ErrAnotherPrimary = errors.New("postgres: another primary")

// Servers are the servers of postgres.url, as this process has seen them. Its pools share them.
type Servers struct {
	logger *slog.Logger
	skip   sync.Once // logs that the identity of servers is not compared

	mu     sync.Mutex
	newest Primary
	last   string                // address of the server that was connected to last
	ips    map[string][]string   // of host names
	conns  map[*pgx.Conn]Primary // open connections
	pools  []*pgxpool.Pool
}

// NewServers returns Servers that nobody has seen yet.
func NewServers(logger *slog.Logger) *Servers {
	return &Servers{logger: logger, ips: make(map[string][]string), conns: make(map[*pgx.Conn]Primary)}
}

// Meet compares a server with the newest primary that is known, and returns ErrAnotherPrimary if it is an older
// one or has other data. A newer one becomes the newest, and connections to others are closed: in a half-open one
// a statement would wait for ten seconds.
func (s *Servers) Meet(p Primary) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch known := s.newest; {
	case p == Primary{} || p == known:
		return nil
	case known == Primary{}:
		s.newest = p
		return nil
	case p.System == known.System && p.Timeline > known.Timeline:
		s.replace(p)
		return nil
	default:
		return fmt.Errorf("%w: its data are %d on timeline %d, the newest are %d on timeline %d", ErrAnotherPrimary, p.System, p.Timeline, known.System, known.Timeline)
	}
}

// Adopt makes p, which the fleet knows, the newest primary, unless this process knows a newer one.
func (s *Servers) Adopt(p Primary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.System != s.newest.System || p.Timeline > s.newest.Timeline {
		s.replace(p)
	}
}

// replace replaces the newest primary. The caller holds the mutex.
func (s *Servers) replace(p Primary) {
	s.logger.Warn("postgres: the primary has changed", "system", p.System, "timeline", p.Timeline,
		"system_before", s.newest.System, "timeline_before", s.newest.Timeline)
	s.newest = p
	for conn, of := range s.conns {
		if of != p {
			_ = conn.PgConn().Conn().Close() // whoever uses it gets an error
		}
	}
	for _, pool := range s.pools {
		pool.Reset()
	}
}

// identity returns no row from a standby.
const identity = `SELECT system_identifier, ('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint
	FROM pg_control_system() WHERE NOT pg_is_in_recovery()`

// Identify asks a server who it is.
func (s *Servers) Identify(ctx context.Context, db DB) (p Primary, err error) {
	err = db.QueryRow(ctx, identity).Scan(&p.System, &p.Timeline)
	if errors.Is(err, pgx.ErrNoRows) || s.isMute(err) {
		return Primary{}, nil
	}
	return p, err
}

// isMute reports whether the server has no such functions, or denies them.
func (s *Servers) isMute(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.Code != "42501" && pg.Code != "42883" && pg.Code != "0A000" {
		return false
	}
	s.skip.Do(func() {
		s.logger.Warn("postgres: an old primary that comes back will not be noticed, because the server does not say who it is", "error", err)
	})
	return true
}

// primaryKey is the key of a server's identity in the custom data of a connection.
const primaryKey = "triprize.primary"

// validate rejects a connection to another primary, so that the next host is tried.
func (s *Servers) validate(also pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if also != nil { // target_session_attrs
			if err := also(ctx, conn); err != nil {
				return err
			}
		}
		answers, err := conn.Exec(ctx, identity).ReadAll()
		if err != nil && !s.isMute(err) {
			return err
		}
		var p Primary
		if err == nil && len(answers) == 1 && len(answers[0].Rows) == 1 {
			row := answers[0].Rows[0]
			p.System, err = strconv.ParseInt(string(row[0]), 10, 64)
			timeline, bad := strconv.ParseInt(string(row[1]), 10, 64)
			if p.Timeline = timeline; cmp.Or(err, bad) != nil {
				return fmt.Errorf("postgres: %q is no identity of a server", row)
			}
		}
		if err := s.Meet(p); err != nil {
			s.logger.Warn("postgres: a connection is refused", "address", conn.Conn().RemoteAddr().String(), "error", err)
			return err
		}
		conn.CustomData()[primaryKey] = p
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = conn.Conn().RemoteAddr().String()
		return nil
	}
}

// opened and closed follow the open connections. opened refuses one whose server was replaced after validate.
func (s *Servers) opened(conn *pgx.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, _ := conn.PgConn().CustomData()[primaryKey].(Primary)
	if of != (Primary{}) && of != s.newest {
		return fmt.Errorf("%w: the newest has just changed", ErrAnotherPrimary)
	}
	s.conns[conn] = of
	return nil
}

func (s *Servers) closed(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}

// hosts returns the hosts of a URL in their order; with sslmode prefer each is there twice, with TLS and without.
func hosts(c *pgx.ConnConfig) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
}

// severalHosts reports whether a URL names more than one.
func severalHosts(c *pgx.ConnConfig) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
}

// lastFirst lets a connection try the last good host first, so that one that does not answer costs its timeout once.
func (s *Servers) lastFirst(_ context.Context, c *pgx.ConnConfig) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := hosts(c)
	slices.SortStableFunc(all, func(a, b *pgconn.FallbackConfig) int { return cmp.Compare(s.rank(a), s.rank(b)) })
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = all[0].Host, all[0].Port, all[0].TLSConfig, all[1:]
	return nil
}

func (s *Servers) rank(f *pgconn.FallbackConfig) int {
	port := strconv.Itoa(int(f.Port))
	if slices.ContainsFunc(s.ips[f.Host], func(ip string) bool { return net.JoinHostPort(ip, port) == s.last }) {
		return 0
	}
	return 1
}

// lookup notes the addresses of host names: a connection knows its address alone.
func (s *Servers) lookup(find pgconn.LookupFunc) pgconn.LookupFunc {
	return func(ctx context.Context, host string) ([]string, error) {
		ips, err := find(ctx, host)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ips[host] = ips
		return ips, err
	}
}
