package wallet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrMoved means that a statement did not touch the rows it meant: somebody
// changes wallets without their locks.
var ErrMoved = errors.New("wallet: rows moved under the wallet's lock")

// Lost tells whether a transaction lost a race that it may win when it is tried
// again: rows moved, or somebody has just used one of its versions or references.
func Lost(err error) bool {
	if errors.Is(err, ErrMoved) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" &&
		(pg.ConstraintName == "wallet_events_pkey" || pg.ConstraintName == "ledger_entries_scope_reference_key")
}

// Write writes what the commands have decided, in one round trip.
func (b *Book) Write(ctx context.Context, tx pgx.Tx) error {
	var p pgx.Batch
	b.Queue(&p)
	if p.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &p).Close(); err != nil {
		return fmt.Errorf("wallet.Write: %w", err)
	}
	return nil
}

// Queue is Write for callers that write more in the same round trip. Every
// statement checks that it touches exactly the rows it means.
func (b *Book) Queue(p *pgx.Batch) {
	if len(b.entries) == 0 {
		return
	}
	b.queueEntries(p)
	b.queueEvents(p)
	b.queueHolds(p)
	b.queueWallets(p)
}

// queueEntries inserts in the order of references: two transactions that use the
// same ones wait for each other in one direction only.
func (b *Book) queueEntries(p *pgx.Batch) {
	entries := slices.Clone(b.entries)
	slices.SortFunc(entries, func(x, y Entry) int {
		if c := strings.Compare(x.Reference.Scope, y.Reference.Scope); c != 0 {
			return c
		}
		return strings.Compare(x.Reference.Text, y.Reference.Text)
	})
	n := len(entries)
	ids, kinds, amounts, currencies := make([]uuid.UUID, n), make([]string, n), make([]int64, n), make([]string, n)
	payers, payees, holds := make([]*uuid.UUID, n), make([]*uuid.UUID, n), make([]*uuid.UUID, n)
	from, to, descriptions := make([]*string, n), make([]*string, n), make([]*string, n)
	scopes, references := make([]string, n), make([]string, n)
	for i, e := range entries {
		ids[i], kinds[i], amounts[i], currencies[i] = e.ID, string(e.Kind), e.Amount, e.Currency
		payers[i], from[i] = pointer(e.Debit.Wallet), pointer(string(e.Debit.Account))
		payees[i], to[i] = pointer(e.Credit.Wallet), pointer(string(e.Credit.Account))
		scopes[i], references[i], descriptions[i], holds[i] = e.Reference.Scope, e.Reference.Text, pointer(e.Description), pointer(e.Authorization)
	}
	p.Queue(`
		INSERT INTO ledger_entries (id, kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency,
		                            scope, reference, description, authorization_id, created_at)
		SELECT e.*, $13::timestamptz FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::bigint[], $8::text[],
		                            $9::text[], $10::text[], $11::text[], $12::uuid[]) AS e`,
		ids, kinds, payers, from, payees, to, amounts, currencies, scopes, references, descriptions, holds, b.now).Exec(exactly(n, "entries"))
}

// queueEvents gives each event the version after the last one that was read.
func (b *Book) queueEvents(p *pgx.Batch) {
	n := len(b.events)
	wallets, versions, entries := make([]uuid.UUID, n), make([]int64, n), make([]uuid.UUID, n)
	balances, helds := make([]int64, n), make([]int64, n)
	for i, e := range b.events {
		wallets[i], versions[i], entries[i], balances[i], helds[i] = e.walletID, e.version, e.entryID, e.deltaBalance, e.deltaHeld
	}
	p.Queue(`
		INSERT INTO wallet_events (wallet_id, version, entry_id, delta_balance, delta_held, at)
		SELECT e.*, $6::timestamptz FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[]) AS e`,
		wallets, versions, entries, balances, helds, b.now).Exec(exactly(n, "events"))
}

func (b *Book) queueHolds(p *pgx.Batch) {
	var made, changed []*hold
	for _, h := range b.holds {
		if h.fresh {
			made = append(made, h)
		} else if h.changed {
			changed = append(changed, h)
		}
	}
	if n := len(made); n > 0 {
		ids, wallets, amounts, captured := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]int64, n), make([]int64, n)
		states, descriptions, expiries := make([]string, n), make([]*string, n), make([]time.Time, n)
		for i, h := range made {
			ids[i], wallets[i], amounts[i], captured[i] = h.ID, h.WalletID, h.Amount, h.Captured
			states[i], descriptions[i], expiries[i] = string(h.State), pointer(h.Description), h.ExpiresAt
		}
		p.Queue(`
			INSERT INTO authorizations (id, wallet_id, amount, captured, state, description, expires_at, created_at, ended_at)
			SELECT a.*, $8::timestamptz, CASE WHEN a.state <> 'active' THEN $8::timestamptz END
			FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::timestamptz[])
			     AS a (id, wallet_id, amount, captured, state, description, expires_at)`,
			ids, wallets, amounts, captured, states, descriptions, expiries, b.now).Exec(exactly(n, "new authorizations"))
	}
	if n := len(changed); n > 0 {
		ids, captured, was, states := make([]uuid.UUID, n), make([]int64, n), make([]int64, n), make([]string, n)
		for i, h := range changed {
			ids[i], captured[i], was[i], states[i] = h.ID, h.Captured, h.was, string(h.State)
		}
		p.Queue(`
			UPDATE authorizations a
			SET captured = c.captured, state = c.state, ended_at = CASE WHEN c.state <> 'active' THEN $5::timestamptz END
			FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS c (id, captured, was, state)
			WHERE a.id = c.id AND a.state = 'active' AND a.captured = c.was`,
			ids, captured, was, states, b.now).Exec(exactly(n, "authorizations"))
	}
}

// queueWallets brings the read model to the version of the last event, from the
// version that was read, and takes the snapshots that are due.
func (b *Book) queueWallets(p *pgx.Batch) {
	var ids, snapped []uuid.UUID
	var balances, helds, versions, starts []int64
	var snapBalances, snapHelds, snapVersions []int64
	for id, a := range b.accounts {
		if a.Version == a.start {
			continue
		}
		ids, starts = append(ids, id), append(starts, a.start)
		balances, helds, versions = append(balances, a.Balance), append(helds, a.Held), append(versions, a.Version)
		if a.Version-a.snapshot >= SnapshotEvery {
			snapped, snapVersions = append(snapped, id), append(snapVersions, a.Version)
			snapBalances, snapHelds = append(snapBalances, a.Balance), append(snapHelds, a.Held)
		}
	}
	p.Queue(`
		UPDATE wallets w SET balance = c.balance, held = c.held, version = c.version
		FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c (id, balance, held, version, start)
		WHERE w.id = c.id AND w.version = c.start`,
		ids, balances, helds, versions, starts).Exec(exactly(len(ids), "wallets"))
	if n := len(snapped); n > 0 {
		p.Queue(`
			INSERT INTO wallet_snapshots (wallet_id, version, balance, held)
			SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])`,
			snapped, snapVersions, snapBalances, snapHelds).Exec(exactly(n, "snapshots"))
	}
}

// exactly returns a check that a statement touches n rows.
func exactly(n int, what string) func(tag pgconn.CommandTag) error {
	return func(tag pgconn.CommandTag) error {
		if tag.RowsAffected() != int64(n) {
			return fmt.Errorf("%w: %d of %d %s", ErrMoved, tag.RowsAffected(), n, what)
		}
		return nil
	}
}

// pointer returns nil for a zero value: NULL in the database.
func pointer[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
