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
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Primary identifies a primary. Its zero value is one that does not say who it is: some hosted services do not.
type Primary struct {
	System   int64  // the identifier of its data: initdb makes one, and its backups and standbys have the same
	Timeline int64  // Postgres counts it up at each promotion
	Branch   string // of the timeline: servers that were promoted apart may have counted up to the same. Empty: unknown
}

// equals reports whether two are one primary, as far as their branches are known.
func (p Primary) equals(q Primary) bool {
	return p.System == q.System && p.Timeline == q.Timeline && (p.Branch == q.Branch || p.Branch == "" || q.Branch == "")
}

// isBranch reports whether two have one timeline and other data.
func (p Primary) isBranch(q Primary) bool {
	return p.System == q.System && p.Timeline == q.Timeline && !p.equals(q)
}

// ErrAnotherPrimary means that the server is not the newest primary that is known: an old one that came back
// after a failover, or one with other data. It is detected and not fenced: see docs/availability.md.
var ErrAnotherPrimary = errors.New("postgres: another primary")

// ErrTwoBranches is an ErrAnotherPrimary on the newest timeline: both servers were promoted, and may have sold since.
var ErrTwoBranches = fmt.Errorf("%w: two branches of one timeline", ErrAnotherPrimary)

// Servers are the servers of postgres.url, as this process has seen them. Its pools share them.
type Servers struct {
	logger *slog.Logger
	skip   sync.Once // logs that the identity of servers is not compared

	mu     sync.Mutex
	newest Primary
	denied time.Time             // when the row of a branch was refused last
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
	case p == Primary{}:
		return nil
	case known == Primary{} || p.equals(known):
		if known.Branch == "" {
			s.newest = p
		}
		return nil
	case p.System == known.System && p.Timeline > known.Timeline:
		s.replace(p)
		return nil
	case p.isBranch(known):
		return fmt.Errorf("%w, %d: this server has %q, the newest primary %q: docs/runbooks/postgres.md#two-branches", ErrTwoBranches, p.Timeline, p.Branch, known.Branch)
	default:
		return fmt.Errorf("%w: its data are %d on timeline %d, the newest are %d on timeline %d", ErrAnotherPrimary, p.System, p.Timeline, known.System, known.Timeline)
	}
}

// Adopt makes p, which the fleet knows, the newest primary, unless this process knows a newer one. Of two branches the
// fleet's is the newest, so that all processes agree.
func (s *Servers) Adopt(p Primary) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch known := s.newest; {
	case known == Primary{} || p.equals(known):
		if known.Branch == "" {
			s.newest = p
		}
	case p.System != known.System || p.Timeline > known.Timeline || p.isBranch(known):
		s.replace(p)
	}
}

// Newest returns the newest primary that is known.
func (s *Servers) Newest() Primary {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// replace replaces the newest primary. The caller holds the mutex.
func (s *Servers) replace(p Primary) {
	s.logger.Warn("postgres: the primary has changed", "system", p.System, "timeline", p.Timeline, "branch", p.Branch,
		"system_before", s.newest.System, "timeline_before", s.newest.Timeline, "branch_before", s.newest.Branch)
	s.newest = p
	for conn, of := range s.conns {
		if of == (Primary{}) || !of.equals(p) {
			_ = conn.PgConn().Conn().Close() // whoever uses it gets an error
		}
	}
	for _, pool := range s.pools {
		pool.Reset()
	}
}

// identity returns no row from a standby, and the branch of its timeline (a null: nobody has met it here), which may be
// unreadable: triprize migrate creates the table.
const (
	identity = `SELECT system_identifier, timeline, %s FROM (SELECT system_identifier,
		('x' || lpad(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), 16, '0'))::bit(64)::bigint AS timeline
		FROM pg_control_system() WHERE NOT pg_is_in_recovery()) s`
	readBranch = `(SELECT branch FROM timelines t WHERE t.system = system_identifier AND t.timeline = s.timeline)`
)

// beginBranch names the branch of a timeline that nobody has met: by its server, and at random. It does not wait for a
// standby: that may be away, and its next timeline is another.
const beginBranch = `SET LOCAL synchronous_commit = local;
	INSERT INTO timelines (system, timeline, branch)
	VALUES (%d, %d, concat_ws(' ', host(inet_server_addr()) || ':' || inet_server_port(), gen_random_uuid())) ON CONFLICT DO NOTHING;
	SELECT branch FROM timelines WHERE system = %[1]d AND timeline = %d`

// Identify asks the server of a pool who it is.
func (s *Servers) Identify(ctx context.Context, db *pgxpool.Pool) (p Primary, err error) {
	conn, err := db.Acquire(ctx)
	if err != nil {
		return p, err
	}
	defer conn.Release()
	if s.Newest().Branch != "" { // it can be read: by a prepared statement, because each process asks every second
		var branch *string
		if err = conn.QueryRow(ctx, fmt.Sprintf(identity, readBranch)).Scan(&p.System, &p.Timeline, &branch); err == nil && branch != nil {
			p.Branch = *branch
			return p, nil
		}
	}
	return s.identify(ctx, conn.Conn().PgConn())
}

func (s *Servers) identify(ctx context.Context, conn *pgconn.PgConn) (p Primary, err error) {
	row, err := ask(ctx, conn, fmt.Sprintf(identity, readBranch))
	if pg, ok := errors.AsType[*pgconn.PgError](err); s.isMute(err) || ok && pg.Code == undefinedTable {
		row, err = ask(ctx, conn, fmt.Sprintf(identity, "''"))
	}
	if s.isMute(err) || err == nil && row == nil {
		return Primary{}, nil
	} else if err != nil {
		return Primary{}, err
	}
	if _, err := fmt.Sscan(string(row[0])+" "+string(row[1]), &p.System, &p.Timeline); err != nil {
		return Primary{}, fmt.Errorf("postgres: %q is no identity of a server: %w", row, err)
	}
	p.Branch = string(row[2])
	if row[2] != nil {
		return p, nil
	}
	if known := s.Newest(); known.Branch != "" && known.equals(p) { // a row written now would hide that this is another branch
		row, err = ask(ctx, conn, fmt.Sprintf(identity, readBranch)) // it may have been written since it was read
		p.Branch = conn.Conn().RemoteAddr().String() + " " + noBranch
		if row != nil && row[2] != nil {
			p.Branch = string(row[2])
		}
		return p, err
	}
	if s.isDenied() || conn.ParameterStatus("default_transaction_read_only") == "on" { // the error would close the connection
		return p, nil
	}
	row, err = ask(ctx, conn, fmt.Sprintf(beginBranch, p.System, p.Timeline))
	if _, refused := errors.AsType[*pgconn.PgError](err); refused { // its disk is full, or the role may not
		s.isMute(err)
		s.mu.Lock()
		s.denied = time.Now()
		s.mu.Unlock()
		return p, nil
	}
	if row != nil {
		p.Branch = string(row[0])
	}
	return p, err
}

// isDenied reports whether a server has refused the row of a branch within a minute: it is not asked with each connection.
func (s *Servers) isDenied() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.denied) < time.Minute
}

// noBranch stands for the name of a branch that the fleet has not met.
const noBranch = "(not met)"

// ask returns the last row of some statements, which are one transaction; nil: there is none.
func ask(ctx context.Context, conn *pgconn.PgConn, sql string) (row [][]byte, err error) {
	answers, err := conn.Exec(ctx, sql).ReadAll()
	for _, answer := range answers {
		if n := len(answer.Rows); n > 0 {
			row = answer.Rows[n-1]
		}
	}
	return row, err
}

// IsDenied reports whether a server lets this role not look, or has no such function, as hosted ones do.
func IsDenied(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "42501" || pg.Code == "42883" || pg.Code == "0A000")
}

// isMute reports whether the server has no such functions, or denies them.
func (s *Servers) isMute(err error) bool {
	if !IsDenied(err) {
		return false
	}
	s.skip.Do(func() {
		s.logger.Warn("postgres: an old primary or another branch that comes back will not be noticed, because the server does not say who it is", "error", err)
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
		p, err := s.identify(ctx, conn)
		if err != nil {
			return err
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
	if of != (Primary{}) && !of.equals(s.newest) {
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

// askedWithin bounds AskOthers.
const askedWithin = 5 * time.Second

// AskOthers asks the hosts of a pool that it is not connected to who they are: one that was promoted becomes the newest
// primary. An old one that says read-write is asked first, and nobody would hear of the other.
func (s *Servers) AskOthers(ctx context.Context, pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(ctx, askedWithin)
	defer cancel()
	all, asked := pool.Config().ConnConfig, make(map[string]bool)
	for _, host := range hosts(all) {
		at := net.JoinHostPort(host.Host, strconv.Itoa(int(host.Port)))
		if asked[at] || strings.HasPrefix(host.Host, "/") { // a socket of this machine
			continue
		}
		one := all.Config.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = host.Host, host.Port, host.TLSConfig, nil
		one.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			p, err := s.identify(ctx, conn)
			return cmp.Or(err, s.Meet(p))
		}
		s.mu.Lock()
		other := s.rank(host) > 0
		s.mu.Unlock()
		if !other {
			continue
		}
		conn, err := pgconn.ConnectConfig(ctx, one)
		asked[at] = err == nil || errors.Is(err, ErrAnotherPrimary) // otherwise it may be there once more, without TLS
		if errors.Is(err, ErrTwoBranches) {
			s.logger.Warn("postgres: another host is refused", "host", host.Host, "error", err)
		} else if err == nil {
			_ = conn.Close(ctx)
		}
	}
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
