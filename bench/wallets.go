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

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/wallets"
	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
)

// callerCount is the number of concurrent callers of commands. Each waits for the answer
// before its next command.
const callerCount = 256

// walletCommands measures commands on wallets: in batches, as the api gathers
// them, or as one transaction each.
type walletCommands struct {
	wallets  int // 1: credits on one hot wallet; more: transfers between two of them
	alone    bool
	batchers int // how many batchers share the work, like that many processes; 0: one
}

func (c walletCommands) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	sys, ids, err := s.openWallets(ctx, c.wallets)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	pool, err := postgres.Open(ctx, sys.settings.Postgres, "triprize-bench-wallets")
	if err != nil {
		return r, err
	}
	defer pool.Close()
	executors := make([]*wallets.Executor, max(c.batchers, 1))
	doers := make([]func(context.Context, wallets.Command) (job.Done, error), len(executors))
	for i := range executors {
		var options wallets.Options
		executor := newExecutor(pool, options)
		executors[i] = executor
		if c.alone {
			doers[i] = func(ctx context.Context, command wallets.Command) (job.Done, error) {
				done, err := executor.Do(ctx, []wallets.Command{command})
				if err != nil {
					return job.Done{}, err
				}
				return done[0], nil
			}
			continue
		}
		batcher := wallets.NewBatcher(executor, sys.settings.Wallets)
		defer batcher.Close()
		doers[i] = batcher.Do
	}
	w := &window{meter: sys.meter()}
	done, took, failures := callUntilOver(ctx, w, measured, func(ctx context.Context) error { return c.once(ctx, doers[rand.IntN(len(doers))], ids) })
	r = newResult(done, w.elapsed, took)
	for _, e := range executors {
		r.note("races lost", float64(e.Counts().Lost))
	}
	r.noteUsage(w, done)
	r.wrong = append(failures, sys.violations(ctx)...)
	return r, ctx.Err()
}

// newExecutor returns an executor whose answers are only ids.
func newExecutor(db *pgxpool.Pool, options wallets.Options) *wallets.Executor {
	return wallets.NewExecutor(db, wallets.Documents{
		Wallet:        func(w wallet.Wallet) any { return w.ID },
		Transfer:      func(e wallet.Entry) any { return e.ID },
		Authorization: func(a wallet.Authorization) any { return a.ID },
	}, options)
}

// once makes one command with a fresh key.
func (c walletCommands) once(ctx context.Context, do func(context.Context, wallets.Command) (job.Done, error), ids []uuid.UUID) error {
	details := wallets.Details{Amount: 1}
	var action wallets.Action = wallets.Credit{Wallet: ids[0], Details: details}
	if len(ids) > 1 {
		from := rand.IntN(len(ids))
		to := (from + 1 + rand.IntN(len(ids)-1)) % len(ids)
		action = wallets.Transfer{From: ids[from], To: ids[to], Details: details}
	}
	done, err := do(ctx, wallets.Command{Action: action, Request: job.Request{ID: uuidv7.New(), Client: "bench", Key: uuid.NewString(), Kind: "bench", Keep: time.Hour}})
	if err == nil {
		err = done.Err
	}
	if err == nil && done.Job.Problem != nil {
		err = done.Job.Problem.Err()
	}
	return err
}

// callUntilOver lets all callers make commands until the window is over. It returns how
// many commands were done while it was open, how long they took, and what failed.
func callUntilOver(ctx context.Context, w *window, measured time.Duration, once func(ctx context.Context) error) (done int, took []time.Duration, failures []string) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for range callerCount {
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

// openWallets opens a system with n wallets, each with money.
func (s *setup) openWallets(ctx context.Context, n int) (sys *system, ids []uuid.UUID, err error) {
	name := fmt.Sprintf("template_wallets_%d", n)
	err = s.makeTemplate(ctx, name, func(db *pgxpool.Pool) error { return fund(ctx, db, owners(n)) })
	if err != nil {
		return nil, nil, err
	}
	if sys, err = s.openSystem(ctx, name); err != nil {
		return nil, nil, err
	}
	found, err := wallet.Find(ctx, sys.db, owners(n))
	if err != nil {
		return nil, nil, errors.Join(err, sys.close(ctx))
	}
	for _, id := range found {
		ids = append(ids, id)
	}
	return sys, ids, nil
}

func owners(n int) []wallet.Owner {
	list := make([]wallet.Owner, n)
	for i := range list {
		list[i] = wallet.Owner{ID: ownerName(i), Currency: "JPY"}
	}
	return list
}

// ownerName returns a user of the same length as the users of other purchases.
func ownerName(i int) string { return fmt.Sprintf("user-%032d", i) }

// startBalance is more than any wallet spends.
const startBalance = 1_000_000_000

// fund opens a wallet for each owner, with money.
func fund(ctx context.Context, db *pgxpool.Pool, owners []wallet.Owner) error {
	executor := newExecutor(db, wallets.Options{})
	for len(owners) > 0 {
		n := min(len(owners), 256)
		commands := make([]wallets.Command, n)
		for i, o := range owners[:n] {
			commands[i] = wallets.Command{Action: wallets.Open{Owner: o, InitialBalance: startBalance},
				Request: job.Request{ID: uuidv7.New(), Client: "bench", Key: uuid.NewString(), Kind: "bench", Keep: time.Hour}}
		}
		if _, err := executor.Do(ctx, commands); err != nil {
			return err
		}
		owners = owners[n:]
	}
	return nil
}
