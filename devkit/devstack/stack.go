package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// Options choose how a Stack runs.
type Options struct {
	Dir     string        // empty: a throw-away folder
	Unsafe  bool          // without fsync, and in memory if the folder is thrown away: for tests that do not measure
	Restart time.Duration // pause before a server that ended is started again; 0: it is not
	Changed func()        // called when a server started or ended
	Logger  *slog.Logger
}

// Stack is a private Postgres and Redis.
type Stack struct {
	Dir       string
	Postgres  *Postgres
	Redis     *Redis
	lock      *flock.Flock
	throwaway bool
}

const (
	throwawayPattern = "triprize-stack-*"
	lockFile         = "lock"
)

// ErrInUse means that another process runs a Stack in the folder.
var ErrInUse = errors.New("devstack: another process uses this folder")

// Start starts both servers. First it stops servers that killed runs left behind
// in the folder, or in throw-away folders.
func Start(ctx context.Context, opts Options) (*Stack, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Stack{Dir: opts.Dir, throwaway: opts.Dir == ""}
	if err := s.occupy(opts.Unsafe); err != nil {
		return nil, err
	}
	var err error
	if s.Postgres, err = startPostgres(ctx, s.Dir, opts, opts.Logger); err == nil {
		s.Redis, err = StartRedis(ctx, s.Dir, opts, opts.Logger)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
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

// Stop stops both servers, and removes a throw-away folder.
func (s *Stack) Stop() error {
	var failed []error
	if s.Redis != nil {
		failed = append(failed, s.Redis.Stop())
	}
	if s.Postgres != nil {
		failed = append(failed, s.Postgres.Stop())
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
		_ = stopLeftover(filepath.Join(dir, "postgres", "postmaster.pid"), dir, syscall.SIGQUIT)
		_ = stopLeftover(filepath.Join(dir, "redis", "redis.pid"), dir, syscall.SIGKILL)
		_ = os.RemoveAll(dir)
		_ = lock.Unlock()
	}
}
