package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a private cluster.
type Postgres struct {
	daemon
	data string
	bin  string              // folder of the programs
	as   *syscall.Credential // its user; nil: that of this process
}

const (
	databaseUser = "triprize"
	standbyName  = "standby" // application_name of the standby, whichever server that is
)

// newPostgres prepares the server whose data is in a folder of dir.
func newPostgres(dir, name string, opts Options) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	as, err := postgresUser()
	if err != nil {
		return nil, err
	}
	p := &Postgres{daemon{log: filepath.Join(dir, name+".log"), shutdown: syscall.SIGINT, crash: syscall.SIGQUIT, grace: stopTimeout},
		filepath.Join(dir, name), bin, as}
	p.try = func(ctx context.Context) error { return p.run(ctx) }
	if err := checkReachable(p.data, as); err != nil {
		return nil, err
	}
	if p.pw, err = password(filepath.Join(dir, "postgres.password")); err != nil {
		return nil, err
	}
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	sync, wal := "on", "4GB"
	if opts.Unsafe {
		sync, wal = "off", "256MB" // it may lie in memory, and a checkpoint costs nothing
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p.Child = &Child{Name: name, Restart: opts.Restart, Changed: opts.Changed, Logger: opts.Logger, Command: func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", p.data, "-p", strconv.Itoa(p.port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300",
			"-c", "fsync="+sync, "-c", "full_page_writes="+sync, "-c", "synchronous_commit=on",
			"-c", "shared_buffers=256MB", "-c", "max_wal_size="+wal, "-c", "log_min_messages=warning")
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.data, log, log, attributes(as)
		return cmd
	}}
	return p, nil
}

// initialise creates the cluster the first time.
func (p *Postgres) initialise(ctx context.Context) error {
	if p.initialised() {
		return nil
	}
	pwfile := filepath.Join(p.data, "..", "initdb.password") // the user of Postgres must be able to read it
	defer func() { _ = os.Remove(pwfile) }()
	if err := errors.Join(os.WriteFile(pwfile, []byte(p.pw+"\n"), 0o600), p.own(pwfile)); err != nil {
		return err
	}
	return p.fill(ctx, nil, "initdb", "-U", databaseUser, "--pwfile="+pwfile, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
}

func (p *Postgres) initialised() bool {
	_, err := os.Stat(filepath.Join(p.data, "PG_VERSION"))
	return err == nil
}

// own gives a file or folder to the user of Postgres.
func (p *Postgres) own(path string) error {
	if p.as == nil {
		return nil
	}
	return os.Chown(path, int(p.as.Uid), int(p.as.Gid))
}

// fill runs a program that makes the data, instead of any that are there. An interrupted one leaves a
// folder that cannot be used, so the folder gets its name at the end.
func (p *Postgres) fill(ctx context.Context, env []string, program string, args ...string) error {
	unfinished := p.data + ".new"
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o700), p.own(unfinished)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, program), append([]string{"-D", unfinished}, args...)...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env = unfinished, attributes(p.as), append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("devstack: %s: %w\n%s", program, err, out)
	}
	if err := os.RemoveAll(p.data); err != nil {
		return err
	}
	return os.Rename(unfinished, p.data)
}

// URL returns the URL of a database of the cluster.
func (p *Postgres) URL(database string) string { return postgresURL(p.pw, database, "", p) }

func postgresURL(pw, database, more string, servers ...*Postgres) string {
	var hosts []string
	for _, p := range servers {
		hosts = append(hosts, p.address())
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(databaseUser, pw), Host: strings.Join(hosts, ","),
		Path: "/" + database, RawQuery: "sslmode=disable" + more}
	return u.String()
}

// run connects and runs statements.
func (p *Postgres) run(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("devstack: %s: %w", statement, err)
		}
	}
	return nil
}

// CreateDatabase creates a database unless it exists.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	exists, err := p.holds(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name)
	if err != nil || exists {
		return err
	}
	return p.run(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" ENCODING 'UTF8' TEMPLATE template0")
}

// holds connects and asks whether a condition holds.
func (p *Postgres) holds(ctx context.Context, query string, args ...any) (yes bool, err error) {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(ctx) }()
	return yes, conn.QueryRow(ctx, query, args...).Scan(&yes)
}

// startPostgres starts the server, or with a standby that which was the primary last, and its standby.
func (s *Stack) startPostgres(ctx context.Context, opts Options) error {
	first, err := newPostgres(s.Dir, "postgres", opts)
	if err != nil {
		return err
	}
	s.Postgres = first
	if _, err := os.Stat(filepath.Join(s.Dir, "postgres-2")); err == nil || opts.Postgres == PostgresStandby {
		if s.Standby, err = newPostgres(s.Dir, "postgres-2", opts); err != nil {
			return err
		}
		s.Postgres, s.Standby = s.roles()
	}
	if err := s.Postgres.initialise(ctx); err != nil {
		return err
	}
	if err := s.Postgres.begin(ctx); err != nil || s.Standby == nil {
		return err
	}
	if opts.Postgres == PostgresStandby {
		s.Postgres.Hold, s.Standby.Hold = s.holdPostgres(s.Postgres), s.holdPostgres(s.Standby)
		return s.attach(ctx, s.Postgres, s.Standby)
	}
	s.Standby = nil // that of an earlier run
	return s.Postgres.run(ctx, commitAlone, reload)
}

const (
	commitAlone = `ALTER SYSTEM RESET synchronous_standby_names`
	reload      = `SELECT pg_reload_conf()`
)

const signalFile = "standby.signal"

// lineage orders servers by which was the primary last: by the name of their timeline. That of a standby, and of one
// without data, is empty. A promotion starts a timeline, and then removes the file that makes a standby.
func (p *Postgres) lineage() string {
	if _, err := os.Stat(filepath.Join(p.data, signalFile)); err == nil || !p.initialised() {
		return ""
	}
	timeline := "00000001"
	files, _ := os.ReadDir(filepath.Join(p.data, "pg_wal"))
	for _, file := range files {
		if name, ok := strings.CutSuffix(file.Name(), ".history"); ok {
			timeline = max(timeline, name)
		}
	}
	return timeline
}

func (p *Postgres) isStandby() bool { return p.initialised() && p.lineage() == "" }

// roles returns the primary, and the server that is its standby, or is to be.
func (s *Stack) roles() (primary, standby *Postgres) {
	if s.Standby != nil && s.Standby.lineage() > s.Postgres.lineage() {
		return s.Standby, s.Postgres
	}
	return s.Postgres, s.Standby
}

// holdPostgres says when a server that ended is not started again: a primary whose standby runs is replaced by
// it; a server without a standby's data is rebuilt; a standby comes after its primary.
func (s *Stack) holdPostgres(p *Postgres) func(time.Duration) bool {
	return func(time.Duration) bool {
		primary, standby := s.roles()
		if p == primary {
			return standby.PID() != 0
		}
		return primary.PID() == 0 || !p.isStandby()
	}
}

// operate is the operator of Postgres: it promotes the standby of a primary that has ended, and makes
// that a standby.
func (s *Stack) operate(ctx context.Context, opts Options) {
	primary, standby := s.roles()
	var err error
	switch {
	case primary.PID() == 0 && standby.PID() != 0:
		opts.Logger.Warn("the primary of Postgres ended; its standby is promoted", "ended", primary.Name, "promoted", standby.Name)
		attempt, done := context.WithTimeout(ctx, 30*time.Second)
		err = standby.run(attempt, `SELECT pg_promote()`) // it commits alone until the other server is its standby
		done()
		standby.changed()
	case primary.PID() != 0 && !standby.isStandby():
		err = s.attach(ctx, primary, standby)
	}
	if err != nil && ctx.Err() == nil {
		opts.Logger.Warn("Postgres has no standby", "error", err)
		select { // what failed may fail, and be logged, for long
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// attach copies the primary to its standby, and then has commits wait for it. Until then the primary alone has them
// all, so a standby that is not attached is no standby.
func (s *Stack) attach(ctx context.Context, primary, standby *Postgres) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, standby.Stop(), os.RemoveAll(standby.data))
		}
	}()
	if err := standby.Stop(); err != nil { // nor is it started meanwhile
		return err
	}
	if err := primary.run(ctx, commitAlone, reload); err != nil {
		return err
	}
	from := []string{"PGPASSWORD=" + primary.pw, "PGAPPNAME=" + standbyName} // it writes both for the standby
	if err := standby.fill(ctx, from, "pg_basebackup", "-h", "127.0.0.1", "-p", strconv.Itoa(primary.port), "-U", databaseUser,
		"--write-recovery-conf", "--checkpoint=fast", "--no-sync"); err != nil {
		return err
	}
	if err := standby.begin(ctx); err != nil {
		return err
	}
	if err := primary.awaitStandby(ctx, `state = 'streaming'`); err != nil {
		return err
	}
	if err := primary.run(ctx, `ALTER SYSTEM SET synchronous_standby_names = `+standbyName, reload); err != nil {
		return err
	}
	return primary.awaitStandby(ctx, `sync_state = 'sync'`)
}

func (p *Postgres) awaitStandby(ctx context.Context, state string) error {
	return awaitReady(ctx, p.Name, p.Exited(), func(ctx context.Context) error {
		there, err := p.holds(ctx, `SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND `+state+`)`, standbyName)
		if err == nil && !there {
			err = errors.New("it has no standby yet")
		}
		return err
	})
}
