package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/wallets"
	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
)

// callers is how many commands on wallets are asked for at once, each by
// somebody who waits for the answer before the next.
const callers = 256

// walletCommands measures commands on wallets through the teller: in crowds, as
// the api's desk gathers them, or as one transaction each.
type walletCommands struct {
	wallets int // 1: credits on one hot wallet; more: transfers between two of them
	alone   bool
	desks   int  // how many processes' worth of desks share the work; 0: one
	locked  bool // they queue up in Redis for hot wallets, as processes do by default
}

func (c walletCommands) run(ctx context.Context, s *stage, measured time.Duration) (r result, err error) {
	v, ids, err := s.openWallets(ctx, c.wallets)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	pool, err := postgres.Open(ctx, v.settings.Postgres, "triprize-bench-wallets")
	if err != nil {
		return r, err
	}
	defer pool.Close()
	tellers := make([]*wallets.Teller, max(c.desks, 1))
	doers := make([]func(context.Context, wallets.Command) (job.Done, error), len(tellers))
	for i := range tellers {
		var options wallets.Options
		if c.locked {
			options.Locker = turnstile{lock.New([]redis.UniversalClient{s.redis}, v.name, v.settings.Locks, prometheus.NewRegistry())}
		}
		t := wallets.New(pool, options)
		tellers[i] = t
		if c.alone {
			doers[i] = func(ctx context.Context, command wallets.Command) (job.Done, error) {
				done, err := t.Do(ctx, []wallets.Command{command})
				if err != nil {
					return job.Done{}, err
				}
				return done[0], nil
			}
			continue
		}
		desk := wallets.NewDesk(t, v.settings.Wallets)
		defer desk.Close()
		doers[i] = desk.Do
	}
	w := &window{meter: v.meter()}
	done, took, failures := ask(ctx, w, measured, func(ctx context.Context) error { return c.once(ctx, doers[rand.IntN(len(doers))], ids) })
	r = newResult(done, w.elapsed, took)
	for _, t := range tellers {
		r.note("races lost", float64(t.Counts().Lost))
		r.note("crowds without the lock", float64(t.Counts().Unlocked))
	}
	r.noteUsage(w, done)
	r.wrong = append(failures, v.unsound(ctx)...)
	return r, ctx.Err()
}

// turnstile is how the api lets the teller queue up.
type turnstile struct{ locks *lock.Locker }

func (t turnstile) Acquire(ctx context.Context, names ...string) (release func(), err error) {
	held, err := t.locks.Acquire(ctx, names...)
	return func() { held.Release(ctx) }, err
}

// once makes one command of a fresh key.
func (c walletCommands) once(ctx context.Context, do func(context.Context, wallets.Command) (job.Done, error), ids []uuid.UUID) error {
	details := wallets.Details{Amount: 1}
	var deed wallets.Deed = wallets.Credit{Wallet: ids[0], Details: details}
	if len(ids) > 1 {
		from := rand.IntN(len(ids))
		to := (from + 1 + rand.IntN(len(ids)-1)) % len(ids)
		deed = wallets.Transfer{From: ids[from], To: ids[to], Details: details}
	}
	done, err := do(ctx, wallets.Command{Deed: deed, Request: job.Request{ID: job.NewID(), Client: "bench", Key: uuid.NewString(), Kind: "bench", Keep: time.Hour}})
	if err == nil {
		err = done.Err
	}
	if err == nil && done.Job.Problem != nil {
		err = done.Job.Problem.Err()
	}
	return err
}

// ask lets the callers ask until the window is over. It returns how many commands
// were done while it was open, how long they took, and what failed.
func ask(ctx context.Context, w *window, measured time.Duration, once func(ctx context.Context) error) (done int, took []time.Duration, failures []string) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			var mine []time.Duration
			for !w.isOver() && ctx.Err() == nil {
				start := time.Now()
				if err := once(ctx); err != nil {
					mu.Lock()
					failures = append(failures, "a command failed: "+err.Error())
					mu.Unlock()
					return
				}
				if w.isOpen() {
					mine = append(mine, time.Since(start))
				}
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	_ = w.pass(ctx, measured, nil) // its error is ctx's
	group.Wait()
	return len(took), took, failures[:min(len(failures), violationsShown)]
}

// openWallets opens a venue with so many wallets, each with money.
func (s *stage) openWallets(ctx context.Context, n int) (v *venue, ids []uuid.UUID, err error) {
	name := fmt.Sprintf("template_wallets_%d", n)
	err = s.makeTemplate(ctx, name, func(db *pgxpool.Pool) error { return fund(ctx, db, owners(n)) })
	if err != nil {
		return nil, nil, err
	}
	if v, err = s.openVenue(ctx, name); err != nil {
		return nil, nil, err
	}
	found, err := wallet.Find(ctx, v.db, owners(n))
	if err != nil {
		return nil, nil, errors.Join(err, v.close(ctx))
	}
	for _, id := range found {
		ids = append(ids, id)
	}
	return v, ids, nil
}

func owners(n int) []wallet.Owner {
	list := make([]wallet.Owner, n)
	for i := range list {
		list[i] = wallet.Owner{ID: ownerName(i), Currency: "JPY"}
	}
	return list
}

// ownerName has the length of the users that crowds make up.
func ownerName(i int) string { return fmt.Sprintf("user-%032d", i) }

// plenty is more than anybody spends here.
const plenty = 1_000_000_000

// fund opens a wallet for each owner, with money.
func fund(ctx context.Context, db *pgxpool.Pool, owners []wallet.Owner) error {
	t := wallets.New(db, wallets.Options{})
	for len(owners) > 0 {
		n := min(len(owners), 256)
		commands := make([]wallets.Command, n)
		for i, o := range owners[:n] {
			commands[i] = wallets.Command{Deed: wallets.Open{Owner: o, InitialBalance: plenty},
				Request: job.Request{ID: job.NewID(), Client: "bench", Key: uuid.NewString(), Kind: "bench", Keep: time.Hour}}
		}
		if _, err := t.Do(ctx, commands); err != nil {
			return err
		}
		owners = owners[n:]
	}
	return nil
}
