package wallet

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Lost reports whether a transaction failed because another one was faster, so that
// a new attempt may succeed: rows have changed, or a version or a reference has just
// been used.
func Lost(err error) bool {
	if errors.Is(err, postgres.ErrRows) {
		return true
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" &&
		(pg.ConstraintName == "wallet_events_pkey" || pg.ConstraintName == "ledger_entries_scope_reference_key")
}

// Write writes what the commands have decided, in one round trip.
func (u *UnitOfWork) Write(ctx context.Context, tx pgx.Tx) error {
	var p pgx.Batch
	u.Queue(&p)
	return fault.At(postgres.Send(ctx, tx, &p), "wallet.Write")
}

// Queue adds the statements of Write to a batch, for callers that write more in the
// same round trip. Each statement fails when it does not change exactly its rows.
func (u *UnitOfWork) Queue(p *pgx.Batch) {
	if len(u.entries) == 0 {
		return
	}
	u.queueEntries(p)
	u.queueEvents(p)
	u.queueAuthorizations(p)
	u.queueWallets(p)
}

// queueEntries inserts in the order of references, so that two transactions with the
// same references cannot deadlock.
func (u *UnitOfWork) queueEntries(p *pgx.Batch) {
	entries := slices.Clone(u.entries)
	slices.SortFunc(entries, func(x, y Entry) int {
		if c := strings.Compare(x.Reference.Scope, y.Reference.Scope); c != 0 {
			return c
		}
		return strings.Compare(x.Reference.Text, y.Reference.Text)
	})
	n := len(entries)
	ids, kinds, amounts, currencies := make([]uuid.UUID, n), make([]string, n), make([]int64, n), make([]string, n)
	payers, payees, authorizations := make([]*uuid.UUID, n), make([]*uuid.UUID, n), make([]*uuid.UUID, n)
	from, to, descriptions := make([]*string, n), make([]*string, n), make([]*string, n)
	scopes, references, metadata := make([]string, n), make([]string, n), make([][]byte, n)
	purchases, actors := make([]*uuid.UUID, n), make([]string, n)
	for i, e := range entries {
		ids[i], kinds[i], amounts[i], currencies[i] = e.ID, string(e.Kind), int64(e.Amount), e.Currency
		payers[i], from[i] = postgres.Nullable(e.Debit.Wallet), postgres.Nullable(string(e.Debit.Account))
		payees[i], to[i] = postgres.Nullable(e.Credit.Wallet), postgres.Nullable(string(e.Credit.Account))
		scopes[i], references[i], descriptions[i], authorizations[i] = e.Reference.Scope, e.Reference.Text, postgres.Nullable(e.Description), postgres.Nullable(e.Authorization)
		metadata[i], purchases[i], actors[i] = e.Metadata.Text(), postgres.Nullable(e.PurchaseID), e.Actor
	}
	p.Queue(`
		INSERT INTO ledger_entries (id, kind, debit_wallet, debit_account, credit_wallet, credit_account, amount, currency,
		                            scope, reference, description, authorization_id, metadata, purchase_id, actor, created_at)
		SELECT e.*, $16::timestamptz FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::uuid[], $6::text[], $7::bigint[], $8::text[],
		                            $9::text[], $10::text[], $11::text[], $12::uuid[], $13::jsonb[], $14::uuid[], $15::text[]) AS e`,
		ids, kinds, payers, from, payees, to, amounts, currencies, scopes, references, descriptions, authorizations, metadata, purchases, actors, u.now).Exec(postgres.Exactly(n, "entries"))
}

// queueEvents inserts the events. Their versions follow the last one that was read.
func (u *UnitOfWork) queueEvents(p *pgx.Batch) {
	n := len(u.events)
	wallets, versions, entries := make([]uuid.UUID, n), make([]int64, n), make([]uuid.UUID, n)
	balances, helds := make([]int64, n), make([]int64, n)
	for i, e := range u.events {
		wallets[i], versions[i], entries[i], balances[i], helds[i] = e.walletID, e.version, e.entryID, int64(e.deltaBalance), int64(e.deltaHeld)
	}
	p.Queue(`
		INSERT INTO wallet_events (wallet_id, version, entry_id, delta_balance, delta_held, at)
		SELECT e.*, $6::timestamptz FROM unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[], $5::bigint[]) AS e`,
		wallets, versions, entries, balances, helds, u.now).Exec(postgres.Exactly(n, "events"))
}

func (u *UnitOfWork) queueAuthorizations(p *pgx.Batch) {
	var made, changed []*authorization
	for _, h := range u.authorizations {
		if h.fresh {
			made = append(made, h)
		} else if h.changed {
			changed = append(changed, h)
		}
	}
	if n := len(made); n > 0 {
		ids, wallets, amounts, captured := make([]uuid.UUID, n), make([]uuid.UUID, n), make([]int64, n), make([]int64, n)
		states, descriptions, expiries, metadata := make([]string, n), make([]*string, n), make([]time.Time, n), make([][]byte, n)
		for i, h := range made {
			ids[i], wallets[i], amounts[i], captured[i] = h.ID, h.WalletID, int64(h.Amount), int64(h.Captured)
			states[i], descriptions[i], expiries[i] = string(h.State), postgres.Nullable(h.Description), h.ExpiresAt
			metadata[i] = h.Metadata.Text()
		}
		p.Queue(`
			INSERT INTO authorizations (id, wallet_id, amount, captured, state, description, expires_at, metadata, created_at, ended_at)
			SELECT a.*, $9::timestamptz, CASE WHEN a.state <> 'active' THEN $9::timestamptz END
			FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::timestamptz[], $8::jsonb[])
			     AS a (id, wallet_id, amount, captured, state, description, expires_at, metadata)`,
			ids, wallets, amounts, captured, states, descriptions, expiries, metadata, u.now).Exec(postgres.Exactly(n, "new authorizations"))
	}
	if n := len(changed); n > 0 {
		ids, captured, was, states := make([]uuid.UUID, n), make([]int64, n), make([]int64, n), make([]string, n)
		for i, h := range changed {
			ids[i], captured[i], was[i], states[i] = h.ID, int64(h.Captured), int64(h.was), string(h.State)
		}
		p.Queue(`
			UPDATE authorizations a
			SET captured = c.captured, state = c.state, ended_at = CASE WHEN c.state <> 'active' THEN $5::timestamptz END
			FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::text[]) AS c (id, captured, was, state)
			WHERE a.id = c.id AND a.state = 'active' AND a.captured = c.was`,
			ids, captured, was, states, u.now).Exec(postgres.Exactly(n, "authorizations"))
	}
}

// queueWallets updates the rows of wallets, at the version that was read, and writes
// the snapshots that are due.
func (u *UnitOfWork) queueWallets(p *pgx.Batch) {
	var ids, snapped []uuid.UUID
	var balances, helds, versions, starts []int64
	var snapBalances, snapHelds, snapVersions []int64
	for id, a := range u.accounts {
		if a.Version == a.start {
			continue
		}
		ids, starts = append(ids, id), append(starts, a.start)
		balances, helds, versions = append(balances, int64(a.Balance)), append(helds, int64(a.Held)), append(versions, a.Version)
		if a.Version-a.snapshot >= SnapshotEvery {
			snapped, snapVersions = append(snapped, id), append(snapVersions, a.Version)
			snapBalances, snapHelds = append(snapBalances, int64(a.Balance)), append(snapHelds, int64(a.Held))
		}
	}
	p.Queue(`
		UPDATE wallets w SET balance = c.balance, held = c.held, version = c.version
		FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c (id, balance, held, version, start)
		WHERE w.id = c.id AND w.version = c.start`,
		ids, balances, helds, versions, starts).Exec(postgres.Exactly(len(ids), "wallets"))
	if n := len(snapped); n > 0 {
		p.Queue(`
			INSERT INTO wallet_snapshots (wallet_id, version, balance, held)
			SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[])`,
			snapped, snapVersions, snapBalances, snapHelds).Exec(postgres.Exactly(n, "snapshots"))
	}
}
