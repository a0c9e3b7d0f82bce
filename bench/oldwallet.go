package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/wallets"
	"triprize/internal/store/job"
	"triprize/internal/store/wallet"
)

// agedWallet measures how long a command takes on a wallet that has many events already,
// with one command after the other.
type agedWallet struct{ events int }

func (a agedWallet) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	name := fmt.Sprintf("template_aged_%d", a.events)
	if err := s.makeTemplate(ctx, name, func(db *pgxpool.Pool) error { return a.fill(ctx, db) }); err != nil {
		return r, err
	}
	sys, err := s.openSystem(ctx, name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	pool, err := postgres.Open(ctx, sys.settings.Postgres, "triprize-bench-wallet")
	if err != nil {
		return r, err
	}
	defer pool.Close()
	found, err := wallet.Find(ctx, pool, owners(1))
	if err != nil {
		return r, err
	}
	executor := newExecutor(pool, wallets.Options{})
	once := func() error {
		done, err := executor.Do(ctx, []wallets.Command{{Action: wallets.Credit{Wallet: found[owners(1)[0]], Details: wallets.Details{Amount: 1}},
			Request: job.Request{ID: uuidv7.New(), Client: "bench", Key: uuid.NewString(), Kind: "bench", Keep: time.Hour}}})
		if err == nil && (done[0].Err != nil || done[0].Job.Problem != nil) {
			err = fmt.Errorf("the credit was refused: %w %v", done[0].Err, done[0].Job.Problem)
		}
		return err
	}
	var took []time.Duration
	for start := time.Now(); time.Since(start) < warmUp(measured)+measured; {
		began := time.Now()
		if err := once(); err != nil {
			return r, err
		}
		if time.Since(start) > warmUp(measured) {
			took = append(took, time.Since(began))
		}
	}
	r = newResult(len(took), measured, took)
	r.note("events before", float64(a.events))
	r.wrong = sys.violations(ctx)
	return r, nil
}

// fill gives one wallet its events, as if they came from credits of 1.
func (a agedWallet) fill(ctx context.Context, db *pgxpool.Pool) error {
	if err := fund(ctx, db, owners(1)); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `
		WITH w AS (SELECT id FROM wallets), made AS (
			SELECT gen_random_uuid() AS id, w.id AS wallet, n FROM w, generate_series(2, $1::int) n
		), entries AS (
			INSERT INTO ledger_entries (id, kind, debit_account, credit_wallet, amount, currency, scope, reference)
			SELECT id, 'credit', 'funding', wallet, 1, 'JPY', '', id::text FROM made
		)
		INSERT INTO wallet_events (wallet_id, version, entry_id, delta_balance, delta_held) SELECT wallet, n, id, 1, 0 FROM made`, a.events)
	if err == nil {
		_, err = db.Exec(ctx, `
			INSERT INTO wallet_snapshots (wallet_id, version, balance, held)
			SELECT w.id, n, w.balance + n - 1, 0 FROM wallets w, generate_series($1, $2::int, $1) n`, wallet.SnapshotEvery, a.events)
	}
	if err == nil {
		_, err = db.Exec(ctx, `UPDATE wallets SET balance = balance + $1 - 1, version = $1`, a.events)
	}
	return err
}
