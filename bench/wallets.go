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
	"triprize/internal/job"
	"triprize/internal/wallet"
)

// callerCount is the number of concurrent callers of commands. Each waits for the answer
// before its next command.
const callerCount = 256

// walletCommands measures commands on wallets: in batches, as the api gathers them, or as
// one transaction each.
type walletCommands struct {
	wallets int // 1: credits on one hot wallet; more: transfers between two of them
	alone   bool
}

func (c walletCommands) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	name := fmt.Sprintf("template_wallets_%d", c.wallets)
	if err := s.makeTemplate(ctx, name, func(db *pgxpool.Pool) error { return fund(ctx, db, owners(c.wallets)) }); err != nil {
		return result{}, err
	}
	return s.on(ctx, name, func(sys *system) (result, error) { return c.measure(ctx, sys, measured) })
}

func (c walletCommands) measure(ctx context.Context, sys *system, measured time.Duration) (r result, err error) {
	found, err := wallet.Find(ctx, sys.pool, owners(c.wallets))
	if err != nil {
		return r, err
	}
	ids := slices.Collect(maps.Values(found))
	executor := newExecutor(sys.pool)
	do := func(ctx context.Context, one wallet.Command) (job.Accepted, error) {
		done, err := executor.Do(ctx, []wallet.Command{one})
		return append(done, job.Accepted{})[0], err
	}
	if !c.alone {
		batcher := wallet.NewBatcher(executor, sys.settings.Wallets)
		defer batcher.Close()
		do = batcher.Do
	}
	w := newWindow(sys.meter())
	r, err = w.repeat(ctx, measured, callerCount, func(int) caller {
		return func() (bool, error) { return true, c.once(ctx, do, ids) }
	})
	r.note("races lost", float64(executor.Lost()))
	r.wrong = append(r.wrong, sys.violations(ctx)...)
	return r, err
}

// newExecutor returns an executor whose answers are only ids.
func newExecutor(db *pgxpool.Pool) *wallet.Executor {
	return wallet.NewExecutor(db, db, wallet.Documents{
		Wallet:        func(w wallet.Wallet) any { return w.ID },
		Transfer:      func(e wallet.Entry) any { return e.ID },
		Authorization: func(a wallet.Authorization) any { return a.ID },
	})
}

// once makes one command with a fresh key.
func (c walletCommands) once(ctx context.Context, do func(context.Context, wallet.Command) (job.Accepted, error), ids []uuid.UUID) error {
	details := wallet.Movement{Amount: 1}
	action := wallet.Action{Kind: wallet.KindCredit, Wallet: ids[0], Movement: details}
	if len(ids) > 1 {
		from := rand.IntN(len(ids))
		to := (from + 1 + rand.IntN(len(ids)-1)) % len(ids)
		action = wallet.Action{Kind: wallet.KindTransfer, Wallet: ids[from], To: ids[to], Movement: details}
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
func commandOf(action wallet.Action) wallet.Command {
	return wallet.Command{Action: action, Who: access.OfClient("bench"), Request: job.Request{ID: uuidv7.New(), Client: "bench", Key: uuid.NewString(), Kind: "bench", Retention: time.Hour}}
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
		commands := make([]wallet.Command, n)
		for i, o := range owners[:n] {
			commands[i] = commandOf(wallet.Action{Owner: o, Movement: wallet.Movement{Amount: startBalance}})
		}
		if _, err := executor.Do(ctx, commands); err != nil {
			return err
		}
		owners = owners[n:]
	}
	return nil
}
