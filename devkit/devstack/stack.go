package devstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Options choose how a Stack runs.
type Options struct {
	Dir     string        // empty: a throw-away folder
	Unsafe  bool          // without fsync, and in memory if the folder is thrown away: for tests that do not measure
	Restart time.Duration // pause before a server that ended is started again; 0: it is not, and no standby is promoted
	Changed func()        // called when a server started or ended, and after a failover
	Logger  *slog.Logger

	Redis    string // RedisSingle …; empty: single
	Postgres string // PostgresSingle …; empty: single
}

// The kinds of servers.
const (
	RedisSingle     = "single"
	RedisThree      = "three"    // independent, for locks by majority; the first is redis.url
	RedisSentinel   = "sentinel" // a primary, two replicas and three Sentinels
	RedisCluster    = "cluster"  // three primaries with a replica each
	PostgresSingle  = "single"
	PostgresStandby = "standby" // a primary and a synchronous standby, which is copied anew at each start
)

// Stack is a private Postgres and Redis.
type Stack struct {
	Dir       string
	Postgres  *Postgres // the primary at the start
	Standby   *Postgres // the standby at the start; nil: there is none
	Redis     *Redis    // the first server; see RedisURL
	lock      *flock.Flock
	throwaway bool

	kind      string   // of Redis
	stores    []*Redis // all but Sentinels
	groups    []*group // of them
	sentinels []*Redis
	operators sync.WaitGroup
	retire    context.CancelFunc // of the operators
}

const (
	throwawayPattern = "triprize-stack-*"
	lockFile         = "lock"
)

// ErrInUse means that another process runs a Stack in the folder.
var ErrInUse = errors.New("devstack: another process uses this folder")

// Check refuses kinds of servers that there are not.
func (o Options) Check() error {
	if _, ok := shapes[cmp.Or(o.Redis, RedisSingle)]; !ok {
		return fmt.Errorf("devstack: --redis must be single, three, sentinel or cluster, and is %q", o.Redis)
	}
	if cmp.Or(o.Postgres, PostgresSingle) != PostgresSingle && o.Postgres != PostgresStandby {
		return fmt.Errorf("devstack: --postgres must be single or standby, and is %q", o.Postgres)
	}
	return nil
}

// Start starts the servers. First it stops those that killed runs left behind
// in the folder, or in throw-away folders.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := opts.Check(); err != nil {
		return nil, err
	}
	opts.Redis = cmp.Or(opts.Redis, RedisSingle)
	s := &Stack{Dir: opts.Dir, throwaway: opts.Dir == "", kind: opts.Redis}
	err := s.occupy(opts.Unsafe)
	if err != nil {
		return nil, err
	}
	if err = stopLeftovers(s.Dir, syscall.SIGINT, syscall.SIGTERM); err == nil {
		err = s.startPostgres(ctx, opts)
	}
	if err == nil {
		err = s.startRedis(ctx, opts)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.employ(opts) //nolint:contextcheck // the operators work until Stop
	return s, nil
}

// employ begins to watch servers of which one can replace another.
func (s *Stack) employ(opts Options) {
	ctx, retire := context.WithCancel(context.Background())
	s.retire = retire
	repeat := func(needed bool, do func(context.Context, Options)) {
		for needed && opts.Restart > 0 && ctx.Err() == nil {
			do(ctx, opts)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	s.operators.Go(func() { repeat(s.Standby != nil, s.operate) })
	s.operators.Go(func() { repeat(shapes[s.kind].replicas > 0, s.watchRedis) })
}

// PostgresURL returns the URL of a database for the settings.
func (s *Stack) PostgresURL(database string) string {
	if s.Standby == nil {
		return s.Postgres.URL(database)
	}
	return postgresURL(s.Postgres.pw, database, "&target_session_attrs=read-write", s.Postgres, s.Standby)
}

// Primaries returns the process ids of the primaries, 0 of one that is down. Of the primaries of a
// Redis Cluster it is that which has the keys with a hash tag.
func (s *Stack) Primaries(tag string) (postgres, redis int) {
	primary, _ := s.roles()
	return primary.PID(), s.groupOf(tag).primary.Load().PID()
}

// PIDs returns the process ids of all servers that run.
func (s *Stack) PIDs() []int {
	var all []*Child
	for _, server := range s.servers() {
		all = append(all, server.Child)
	}
	return PIDs(all)
}

// servers returns all servers, the primary of Postgres before its standby: it ends when the standby has everything.
func (s *Stack) servers() (all []*daemon) {
	primary, standby := s.roles()
	for _, p := range []*Postgres{primary, standby} {
		if p != nil {
			all = append(all, &p.daemon)
		}
	}
	for _, r := range slices.Concat(s.sentinels, s.stores) {
		all = append(all, &r.daemon)
	}
	return all
}

// occupy creates the folder and takes its lock.
func (s *Stack) occupy(unsafe bool) (err error) {
	if s.throwaway {
		RemoveLeftovers()
		if s.Dir, err = os.MkdirTemp(place(unsafe), throwawayPattern); err != nil {
			return err
		}
	} else if s.Dir, err = filepath.Abs(s.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Dir, 0o711); err != nil {
		return err
	}
	if err := os.Chmod(s.Dir, 0o711); err != nil { // the user of Postgres must be able to enter its data folder
		return err
	}
	s.lock = flock.New(filepath.Join(s.Dir, lockFile), flock.SetPermissions(0o600))
	free, err := s.lock.TryLock()
	if err != nil {
		return err
	}
	if !free {
		return fmt.Errorf("%w: %s", ErrInUse, s.Dir)
	}
	return nil
}

// Stop stops the servers, and removes a throw-away folder.
func (s *Stack) Stop() error {
	if s.retire != nil {
		s.retire()
		s.operators.Wait()
	}
	var failed []error
	for _, server := range s.servers() {
		failed = append(failed, server.Stop())
	}
	if s.throwaway {
		failed = append(failed, os.RemoveAll(s.Dir))
	}
	return errors.Join(append(failed, s.lock.Unlock())...)
}

// RemoveLeftovers stops and removes the throw-away stacks of runs that were killed.
func RemoveLeftovers() {
	for _, dir := range throwaways() {
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue // a process may just have created it and be about to lock it
		}
		lock := flock.New(filepath.Join(dir, lockFile))
		if free, err := lock.TryLock(); err != nil || !free {
			continue // in use
		}
		_ = stopLeftovers(dir, syscall.SIGQUIT, syscall.SIGKILL)
		_ = os.RemoveAll(dir)
		_ = lock.Unlock()
	}
}
