package devstack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
)

// startTimeout bounds the start of one server.
const startTimeout = 2 * time.Minute

// daemon is a private server on a loopback port.
type daemon struct {
	*Child
	port            int
	pw              string
	shutdown, crash syscall.Signal
	grace           time.Duration                   // of its shutdown
	try             func(ctx context.Context) error // fails until the server answers
}

// Postgres is a private cluster.
type Postgres struct {
	daemon
	data string
}

// Redis is a private server with an append-only file.
type Redis struct{ daemon }

// begin starts the server and waits until it answers. log says where its log is.
func (s *daemon) begin(ctx context.Context, log string) error {
	if err := s.Start(); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		_ = s.Stop()
		return fmt.Errorf("%w; its log is %s", err, log)
	}
	return nil
}

func (s *daemon) awaitReady(ctx context.Context) error {
	return awaitReady(ctx, s.Name, s.Exited(), s.try)
}

// Stop shuts the server down: clients are disconnected, no data is lost.
func (s *daemon) Stop() error { return s.Child.Stop(s.shutdown, s.grace) }

// RestartAfter stops the server as a crash would, waits for down, and starts it again on
// the same port, with the data that it had on disk.
func (s *daemon) RestartAfter(ctx context.Context, down time.Duration) error {
	if err := s.Child.Stop(s.crash, s.grace); err != nil {
		return err
	}
	time.Sleep(down)
	if err := s.Start(); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

// password returns the password in file, and creates it the first time.
func password(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	pw := hex.EncodeToString(random)
	return pw, os.WriteFile(file, []byte(pw+"\n"), 0o600)
}

const databaseUser = "triprize"

// startPostgres starts the cluster in dir, and creates it the first time.
func startPostgres(ctx context.Context, dir string, opts Options, logger *slog.Logger) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	as, err := postgresUser()
	if err != nil {
		return nil, err
	}
	p := &Postgres{daemon{shutdown: syscall.SIGINT, crash: syscall.SIGQUIT, grace: 20 * time.Second}, filepath.Join(dir, "postgres")}
	p.try = p.connect
	if err := checkReachable(p.data, as); err != nil {
		return nil, err
	}
	if p.pw, err = password(filepath.Join(dir, "postgres.password")); err != nil {
		return nil, err
	}
	if err := stopLeftover(filepath.Join(p.data, "postmaster.pid"), p.data, syscall.SIGINT); err != nil {
		return nil, err
	}
	if err := p.initialise(ctx, bin, as); err != nil {
		return nil, err
	}
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	sync, wal := "on", "4GB"
	if opts.Unsafe {
		sync, wal = "off", "256MB" // it may lie in memory, and a checkpoint costs nothing
	}
	log, err := os.OpenFile(filepath.Join(dir, "postgres.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p.Child = &Child{Name: "postgres", Restart: opts.Restart, Changed: opts.Changed, Logger: logger, Command: func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", p.data, "-p", strconv.Itoa(p.port),
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300",
			"-c", "fsync="+sync, "-c", "full_page_writes="+sync, "-c", "synchronous_commit=on",
			"-c", "shared_buffers=256MB", "-c", "max_wal_size="+wal, "-c", "log_min_messages=warning")
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = p.data, log, log, attributes(as)
		return cmd
	}}
	return p, p.begin(ctx, log.Name())
}

func (p *Postgres) initialise(ctx context.Context, bin string, as *syscall.Credential) error {
	if _, err := os.Stat(filepath.Join(p.data, "PG_VERSION")); err == nil {
		return nil
	}
	unfinished := p.data + ".new" // renamed at the end: an interrupted initdb leaves a folder that cannot be used
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		return err
	}
	pwfile := filepath.Join(p.data, "..", "initdb.password") // the user of Postgres must be able to read it
	if err := os.WriteFile(pwfile, []byte(p.pw+"\n"), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(pwfile) }()
	if as != nil {
		for _, path := range []string{unfinished, pwfile} {
			if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", unfinished, "-U", databaseUser, "--pwfile="+pwfile,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = unfinished, attributes(as)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("devstack: initdb: %w\n%s", err, out)
	}
	_ = os.Remove(p.data) // it may exist, empty
	return os.Rename(unfinished, p.data)
}

// URL returns the URL of a database of the cluster.
func (p *Postgres) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(databaseUser, p.pw), Host: "127.0.0.1:" + strconv.Itoa(p.port),
		Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

func (p *Postgres) connect(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// CreateDatabase creates a database unless it exists.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return fmt.Errorf("devstack.CreateDatabase: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name).Scan(&exists); err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	return err
}

// StartRedis starts a Redis in dir.
func StartRedis(ctx context.Context, dir string, opts Options, logger *slog.Logger) (*Redis, error) {
	bin, err := redisServer()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "redis")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	if err := stopLeftover(filepath.Join(home, "redis.pid"), home, syscall.SIGTERM); err != nil {
		return nil, err
	}
	r := &Redis{daemon{shutdown: syscall.SIGTERM, crash: syscall.SIGKILL, grace: 10 * time.Second}}
	r.try = r.ping
	if r.pw, err = password(filepath.Join(dir, "redis.password")); err != nil {
		return nil, err
	}
	if r.port, err = freePort(); err != nil {
		return nil, err
	}
	config := filepath.Join(home, "redis.conf") // not the command line, where every user could read the password
	settings := fmt.Sprintf("bind 127.0.0.1\nport %d\nrequirepass %s\ndir %s\npidfile %s\nlogfile %s\nappendonly yes\nappendfsync everysec\nsave \"\"\nmaxmemory-policy noeviction\ndaemonize no\n"+
		"proc-title-template \"{title} {config-file}\"\n", // so that stopLeftover recognises it
		r.port, r.pw, redisText(home), redisText(filepath.Join(home, "redis.pid")), redisText(filepath.Join(home, "redis.log")))
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	r.Child = &Child{Name: "redis", Restart: opts.Restart, Changed: opts.Changed, Logger: logger, Command: func() *exec.Cmd {
		cmd := exec.Command(bin, config)
		cmd.Dir, cmd.SysProcAttr = home, attributes(nil)
		return cmd
	}}
	return r, r.begin(ctx, "in "+home)
}

// redisText quotes a text for redis.conf: an unquoted one would end at a blank.
func redisText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + `"`
}

// URL returns the URL of the server, with a user: redis-cli 7 refuses a password alone.
func (r *Redis) URL() string { return fmt.Sprintf("redis://default:%s@127.0.0.1:%d/0", r.pw, r.port) }

func (r *Redis) ping(ctx context.Context) error {
	opts, err := redis.ParseURL(r.URL())
	if err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	return client.Ping(ctx).Err()
}

// awaitReady tries until the server answers, or until ended is closed because its
// process has ended; nil: the process is not watched.
func awaitReady(ctx context.Context, name string, ended <-chan struct{}, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		attempt, done := context.WithTimeout(ctx, 2*time.Second)
		err := try(attempt)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("devstack: %s does not answer: %w", name, err)
		case <-ended:
			return fmt.Errorf("devstack: %s ended instead of getting ready: %w", name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
