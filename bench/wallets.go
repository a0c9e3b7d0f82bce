package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/uuidv7"
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
	callers  int // 0: callerCount
	events   int // that the one wallet has before; 0: the first
}

// command executes one command.
type command func(context.Context, wallets.Command) (job.Done, error)

func (c walletCommands) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	name := fmt.Sprintf("template_wallets_%d_%d", c.wallets, c.events)
	if err := s.makeTemplate(ctx, name, func(db *pgxpool.Pool) error {
		err := fund(ctx, db, owners(c.wallets))
		if err == nil && c.events > 0 {
			err = age(ctx, db, c.events)
		}
		return err
	}); err != nil {
		return result{}, err
	}
	return s.on(ctx, name, func(sys *system) (result, error) {
		return sys.withPool(ctx, func(pool *pgxpool.Pool) (result, error) { return c.measure(ctx, sys, pool, measured) })
	})
}

func (c walletCommands) measure(ctx context.Context, sys *system, pool *pgxpool.Pool, measured time.Duration) (r result, err error) {
	found, err := wallet.Find(ctx, pool, owners(c.wallets))
	if err != nil {
		return r, err
	}
	ids := slices.Collect(maps.Values(found))
	executors := make([]*wallets.Executor, max(c.batchers, 1))
	commands := make([]command, len(executors))
	for i := range executors {
		executors[i] = newExecutor(pool)
		commands[i] = alone(executors[i])
		if !c.alone {
			batcher := wallets.NewBatcher(executors[i], sys.settings.Wallets)
			defer batcher.Close()
			commands[i] = batcher.Do
		}
	}
	callers := callerCount
	if c.callers > 0 {
		callers = c.callers
	}
	w := newWindow(sys.meter())
	took, failures, err := w.repeat(ctx, measured, callers, func(int) caller {
		return func() (bool, error) { return true, c.once(ctx, commands[rand.IntN(len(commands))], ids) }
	})
	if err != nil {
		return r, err
	}
	r = newResult(len(took), w.elapsed, took)
	if c.events > 0 {
		r.note("events before", float64(c.events))
	}
	for _, e := range executors {
		r.note("races lost", float64(e.Counts().Lost))
	}
	r.noteUsage(w, len(took))
	r.wrong = append(failures, sys.violations(ctx)...)
	return r, nil
}

// alone executes each command in a transaction of its own.
func alone(e *wallets.Executor) command {
	return func(ctx context.Context, one wallets.Command) (job.Done, error) {
		done, err := e.Do(ctx, []wallets.Command{one})
		if err != nil {
			return job.Done{}, err
		}
		return done[0], nil
	}
}

// newExecutor returns an executor whose answers are only ids.
func newExecutor(db *pgxpool.Pool) *wallets.Executor {
	return wallets.NewExecutor(db, wallets.Documents{
		Wallet:        func(w wallet.Wallet) any { return w.ID },
		Transfer:      func(e wallet.Entry) any { return e.ID },
		Authorization: func(a wallet.Authorization) any { return a.ID },
	}, wallets.Options{})
}

// once makes one command with a fresh key.
func (c walletCommands) once(ctx context.Context, do command, ids []uuid.UUID) error {
	details := wallets.Details{Amount: 1}
	var action wallets.Action = wallets.Credit{Wallet: ids[0], Details: details}
	if len(ids) > 1 {
		from := rand.IntN(len(ids))
		to := (from + 1 + rand.IntN(len(ids)-1)) % len(ids)
		action = wallets.Transfer{From: ids[from], To: ids[to], Details: details}
	}
	done, err := do(ctx, commandOf(action))
	if err == nil {
		err = done.Err
	}
	if err == nil && done.Job.Problem != nil {
		err = done.Job.Problem.Err()
	}
	return err
}

// commandOf returns a command with a fresh key.
func commandOf(action wallets.Action) wallets.Command {
	return wallets.Command{Action: action, Who: access.OfClient("bench"), Request: job.Request{ID: uuidv7.New(), Client: "bench", Key: uuid.NewString(), Kind: "bench", Keep: time.Hour}}
}

func owners(n int) []wallet.Owner {
	list := make([]wallet.Owner, n)
	for i := range list {
		list[i] = wallet.Owner{Client: "bench", ID: ownerName(i), Currency: "JPY"}
	}
	return list
}

// ownerName returns a user of the same length as the users of other purchases.
func ownerName(i int) string { return fmt.Sprintf("user-%032d", i) }

// startBalance is more than any wallet spends.
const startBalance = 1_000_000_000

// fund opens a wallet for each owner, with money.
func fund(ctx context.Context, db *pgxpool.Pool, owners []wallet.Owner) error {
	executor := newExecutor(db)
	for len(owners) > 0 {
		n := min(len(owners), 256)
		commands := make([]wallets.Command, n)
		for i, o := range owners[:n] {
			commands[i] = commandOf(wallets.Open{Owner: o, InitialBalance: startBalance})
		}
		if _, err := executor.Do(ctx, commands); err != nil {
			return err
		}
		owners = owners[n:]
	}
	return nil
}

// age gives one wallet its events, as if they came from credits of 1.
func age(ctx context.Context, db *pgxpool.Pool, events int) error {
	_, err := db.Exec(ctx, `
		WITH w AS (SELECT id FROM wallets), made AS (
			SELECT gen_random_uuid() AS id, w.id AS wallet, n FROM w, generate_series(2, $1::int) n
		), entries AS (
			INSERT INTO ledger_entries (id, kind, debit_account, credit_wallet, amount, currency, scope, reference, actor)
			SELECT id, 'credit', 'funding', wallet, 1, 'JPY', '', id::text, 'system' FROM made
		)
		INSERT INTO wallet_events (wallet_id, version, entry_id, delta_balance, delta_held) SELECT wallet, n, id, 1, 0 FROM made`, events)
	if err == nil {
		_, err = db.Exec(ctx, `
			INSERT INTO wallet_snapshots (wallet_id, version, balance, held)
			SELECT w.id, n, w.balance + n - 1, 0 FROM wallets w, generate_series($1, $2::int, $1) n`, wallet.SnapshotEvery, events)
	}
	if err == nil {
		_, err = db.Exec(ctx, `UPDATE wallets SET balance = balance + $1 - 1, version = $1`, events)
	}
	return err
}
